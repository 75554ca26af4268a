/* The kernel with memory that ends where it should, for a compiler that watches every read and write: each array is
   allocated by itself, and as large as native.py makes it. Prints "ok" and whether half precision was among it. */
#include "cpu_kernel.c"

#include <stdio.h>
#include <stdlib.h>

static uint32_t last = 1;
static float number(void) { /* -0.25 to 0.25 */
    last = last * 1664525 + 1013904223;
    return (float)(last >> 8) / (1 << 25) - 0.25f;
}

static void *numbers(long count, int in_half) {
    float *single = malloc(sizeof(float) * count);
    for (long i = 0; i < count; i++) single[i] = number();
    if (!in_half) return single;
    half *cut = malloc(sizeof(half) * count); /* the upper half of each number */
    for (long i = 0; i < count; i++) memcpy(cut + i, (char *)(single + i) + 2, sizeof(half));
    free(single);
    return cut;
}

static void check(long rows, long length, long dim, long heads, long hidden, int in_half) {
    const long size = rows * length * dim;
    Layer layer = {
        numbers(3 * dim * dim, in_half), numbers(dim * dim, in_half), numbers(dim * hidden, in_half),
        numbers(dim * hidden, in_half), numbers(dim, 0), numbers(hidden, 0), numbers(dim, 0),
    };
    float *x = numbers(size, 0), *y = malloc(sizeof(float) * size);
    float *scratch = malloc(sizeof(float) * lehd_room(rows, length, dim, heads, hidden));
    lehd_layers(x, y, rows, length, &layer, 1, dim, heads, hidden, 0.25f, in_half, scratch);
    for (long i = 0; i < size; i++)
        if (!(y[i] > -1e6f && y[i] < 1e6f)) {
            printf("%f: %ld rows of %ld, %ld wide\n", y[i], rows, length, dim);
            exit(1);
        }
    void *all[] = {(void *)layer.qkv, (void *)layer.out, (void *)layer.ff_in, (void *)layer.ff_out, (void *)layer.out_bias,
                   (void *)layer.ff_in_bias, (void *)layer.ff_out_bias, x, y, scratch};
    for (int i = 0; i < 10; i++) free(all[i]);
}

int main(void) {
    const long lengths[] = {1, 2, 5, 6, 7, 12, 13, 16, 17, 31, 32, 33, 63, 65, 100, 129, 257};
    const long sizes[][3] = {{64, 4, 128}, {64, 2, 64}, {128, 8, 192}};
    for (int in_half = 0; in_half <= lehd_half(); in_half++)
        for (int i = 0; i < 17; i++)
            for (int j = 0; j < 3; j++) {
                check(1, lengths[i], sizes[j][0], sizes[j][1], sizes[j][2], in_half);
                check(256 / lengths[i] + 2, lengths[i], sizes[j][0], sizes[j][1], sizes[j][2], in_half);
            }
    puts(lehd_half() ? "ok, half" : "ok");
}
