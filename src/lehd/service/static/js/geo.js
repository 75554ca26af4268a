// The globe on a flat screen: Mercator, a graticule, and tiles where a server for them is configured.

const LIMIT = 85.0511;
const RAD = Math.PI / 180;

/** Degrees of latitude as Mercator draws them, in the same unit as degrees of longitude. */
export function mercator(latitude) {
  const inside = Math.min(LIMIT, Math.max(-LIMIT, latitude));
  return Math.log(Math.tan(Math.PI / 4 + (inside * RAD) / 2)) / RAD;
}

export function unmercator(y) {
  return (2 * Math.atan(Math.exp(y * RAD)) - Math.PI / 2) / RAD;
}

const STEPS = [90, 45, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001];

/** Meridians and parallels, some 100 pixels apart: where they are on the screen, and their degrees in words. */
export function graticule(camera, width, height) {
  const step = STEPS.find((degrees) => degrees * camera.scale < 170) ?? STEPS.at(-1);
  const [west, south] = camera.world(0, height);
  const [east, north] = camera.world(width, 0);
  const words = (degrees, plus, minus) =>
    `${Number(Math.abs(degrees).toFixed(3))}°${degrees > 1e-9 ? plus : degrees < -1e-9 ? minus : ""}`;
  const [across, along] = [[], []];
  for (let x = Math.ceil(Math.max(west, -180) / step) * step; x <= Math.min(east, 360); x += step) {
    across.push([camera.screen(x, 0)[0], words(x, "E", "W")]);
  }
  for (let y = Math.ceil(Math.max(unmercator(south), -80) / step) * step; y <= Math.min(unmercator(north), 85); y += step) {
    along.push([camera.screen(0, mercator(y))[1], words(y, "N", "S")]);
  }
  return { across, along };
}

export function drawGraticule(context, camera, width, height, colour) {
  const { across, along } = graticule(camera, width, height);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (const [x] of across) {
    context.moveTo(x, 0);
    context.lineTo(x, height);
  }
  for (const [y] of along) {
    context.moveTo(0, y);
    context.lineTo(width, y);
  }
  context.stroke();
}

export function drawDegrees(context, camera, width, height, colour) {
  const { across, along } = graticule(camera, width, height);
  context.fillStyle = colour;
  context.font = "11px system-ui, sans-serif";
  for (const [x, words] of across) context.fillText(words, x + 4, height - 52);
  for (const [y, words] of along) if (y > 70 && y < height - 70) context.fillText(words, 6, y - 4);
}

/** Map tiles, fetched when first seen; `ready` is called when one has come. */
export class Tiles {
  constructor(template, ready) {
    this.template = template;
    this.ready = ready;
    this.images = new Map();
  }

  draw(context, camera, width, height) {
    const zoom = Math.max(0, Math.min(19, Math.round(Math.log2((camera.scale * 360) / 256))));
    const count = 2 ** zoom;
    const column = (x) => Math.floor(((x + 180) / 360) * count);
    const row = (y) => Math.floor(((180 - y) / 360) * count);
    const [west, south] = camera.world(0, height);
    const [east, north] = camera.world(width, 0);
    for (let tx = Math.max(0, column(west)); tx <= Math.min(count - 1, column(east)); tx++) {
      for (let ty = Math.max(0, row(north)); ty <= Math.min(count - 1, row(south)); ty++) {
        const image = this.image(zoom, tx, ty);
        if (!image.complete || !image.naturalWidth) continue;
        const [left, top] = camera.screen((tx / count) * 360 - 180, 180 - (ty / count) * 360);
        const [right, bottom] = camera.screen(((tx + 1) / count) * 360 - 180, 180 - ((ty + 1) / count) * 360);
        context.drawImage(image, left, top, right - left + 0.5, bottom - top + 0.5);
      }
    }
  }

  image(z, x, y) {
    const url = this.template.replace("{z}", z).replace("{x}", x).replace("{y}", y);
    let image = this.images.get(url);
    if (!image) {
      image = new Image();
      image.crossOrigin = "anonymous"; // so that the picture can still be saved
      image.onload = this.ready;
      image.src = url;
      this.images.set(url, image);
      if (this.images.size > 400) this.images.delete(this.images.keys().next().value);
    }
    return image;
  }
}
