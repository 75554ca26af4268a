// Numbers and files in words.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function brief(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  if (Number.isInteger(number) || Math.abs(number) >= 10000) return whole.format(number);
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 5 }).format(number);
}

export const percent = (share) => `${(100 * share).toFixed(Math.abs(share) < 0.1 ? 2 : 1)} %`;

export const plural = (number, thing) => `${whole.format(number)} ${thing}${number === 1 ? "" : "s"}`;

/** A name for a downloaded file: letters, digits and dashes. */
export const fileName = (name, ending) => `${name.replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "solution"}.${ending}`;

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
