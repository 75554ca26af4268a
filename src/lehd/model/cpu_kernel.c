/* A stack of attention layers on one core of a CPU: the same function as the layers' own code (attention.py).

   native.py compiles this for the processor it runs on, and calls it without Python's lock. Matrices come in panels of
   16 columns, packed there. With `half` matrix products are of bfloat16 numbers with sums in single precision, as far as
   the compiler finds the processor capable; sums along the layers, scores and softmax are in single precision always.
   Every token, and every row of nodes, is computed on its own, so that results do not depend on what else is in a batch.
*/
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define GROUP 4 /* panels that a tile of a matrix product has side by side: what the registers hold */
#elif defined(__AVX__)
#define LANES 8
#define GROUP 1
#else
#define LANES 4
#define GROUP 1
#endif
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include <immintrin.h>
#define HAS_HALF 1
#else
#define HAS_HALF 0
#endif
#if HAS_HALF && defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

#define PANEL 16
#define PARTS (PANEL / LANES) /* vectors in a row of a panel */
#define TALL 6                /* rows of a tile of a matrix product */
#define QUERIES (LANES == 16 ? 12 : 6) /* nodes that attend at a time */
#define BLOCK 64              /* tokens that go through the feed-forward network at a time */
#define CHUNK 256             /* tokens of short rows that go through the layers together */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define UP(a, b) (((a) + (b) - 1) / (b) * (b))
#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t half;

typedef struct {
    const void *qkv, *out, *ff_in, *ff_out; /* panels */
    const float *out_bias, *ff_in_bias, *ff_out_bias;
} Layer;

typedef enum { STORE, ADD, RELU } Then; /* what happens to a product: it is stored, or with a bias added, or cut off at 0 */

INLINE vec all(float value) { return value - (vec){0}; }
INLINE vec larger(vec a, vec b) {
    ivec pick = a > b;
    return (vec)(((ivec)a & pick) | ((ivec)b & ~pick));
}

/* ---- half precision */

#if HAS_HALF
INLINE void to_half(const float *from, half *to, long count) { /* a multiple of 16 */
    for (long i = 0; i < count; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
}
#endif

/* ---- matrix products */

/* Sums (tall, GROUP panels) of rows `a` times panels `b`, whose rows are `b_row` apart and which are `b_panel` apart. */
INLINE void tile(const void *a, long a_row, const void *b, long b_row, long b_panel, long depth, vec *sums, int tall,
                 int group, int in_half) {
    UNROLL for (int i = 0; i < tall * group * PARTS; i++) sums[i] = all(0);
    if (in_half) {
#if HAS_HALF
        for (long k = 0; k < depth / 2; k++) {
            __m512bh right[GROUP];
            UNROLL for (int j = 0; j < group; j++) right[j] =
                (__m512bh)_mm512_loadu_si512((const half *)b + j * b_panel + k * b_row);
            UNROLL for (int i = 0; i < tall; i++) {
                int32_t pair;
                memcpy(&pair, (const half *)a + i * a_row + 2 * k, 4);
                UNROLL for (int j = 0; j < group; j++) sums[i * group + j] = (vec)_mm512_dpbf16_ps(
                    (__m512)sums[i * group + j], (__m512bh)_mm512_set1_epi32(pair), right[j]);
            }
        }
#endif
        return;
    }
    for (long k = 0; k < depth; k++) {
        vec right[GROUP * PARTS];
        UNROLL for (int j = 0; j < group; j++) UNROLL for (int p = 0; p < PARTS; p++) right[j * PARTS + p] =
            *(const vec *)((const float *)b + j * b_panel + k * b_row + p * LANES);
        UNROLL for (int i = 0; i < tall; i++) {
            vec left = all(((const float *)a)[i * a_row + k]);
            UNROLL for (int j = 0; j < group * PARTS; j++) sums[i * group * PARTS + j] += left * right[j];
        }
    }
}

/* 16 columns of a product and what happens to them. */
INLINE void finish(const vec *sums, const float *bias, void *to, Then then, int in_half) {
    UNROLL for (int p = 0; p < PARTS; p++) {
        vec value = sums[p], *place = (vec *)((float *)to + p * LANES);
        if (then != STORE) value += *(const vec *)(bias + p * LANES);
        if (then == ADD) value += *place;
        if (then == RELU) value = larger(value, all(0));
#if HAS_HALF
        if (then == RELU && in_half) {
            _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)value));
            continue;
        }
#endif
        *place = value;
    }
}

INLINE void some_rows(const void *a, long a_row, const void *b, long depth, const float *bias, void *to, long to_row,
                      int to_size, Then then, int in_half, int tall) {
    vec sums[TALL * GROUP * PARTS];
    tile(a, a_row, b, in_half ? 2 * PANEL : PANEL, depth * PANEL, depth, sums, tall, GROUP, in_half);
    UNROLL for (int i = 0; i < tall; i++) UNROLL for (int j = 0; j < GROUP; j++)
        finish(sums + (i * GROUP + j) * PARTS, bias + j * PANEL, (char *)to + (i * to_row + j * PANEL) * to_size, then, in_half);
}

#if HAS_TILES
typedef struct {
    uint8_t palette, row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64))) Tiles;

/* Rows of `a` (up to 32) times two panels, by matrix units. */
INLINE void two_panels(const half *a, long a_row, const half *b, long depth, float *sums, int both) {
    _tile_zero(0);
    _tile_zero(1);
    if (both) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (long k = 0; k < depth; k += 32) {
        _tile_loadd(6, b + k * PANEL, 4 * PANEL);
        _tile_loadd(7, b + (depth + k) * PANEL, 4 * PANEL);
        _tile_loadd(4, a + k, 2 * a_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (both) {
            _tile_loadd(5, a + 16 * a_row + k, 2 * a_row);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 128);
    _tile_stored(1, sums + 16, 128);
    if (both) {
        _tile_stored(2, sums + 512, 128);
        _tile_stored(3, sums + 528, 128);
    }
}

/* Compilers do not know all that the instructions for tiles read. */
#define IN_MEMORY __asm__ volatile("" ::: "memory")

INLINE void product_by_tiles(const half *a, long a_row, const half *b, const float *bias, void *to, long to_row,
                             int to_size, long rows, long depth, long columns, Then then) {
    float sums[32 * 32] __attribute__((aligned(64)));
    IN_MEMORY;
    for (long j = 0; j < columns; j += 2 * PANEL)
        for (long i = 0; i < rows; i += 32) { /* rows that are missing are computed and forgotten */
            if (rows - i > 16) two_panels(a + i * a_row, a_row, b + j * depth, depth, sums, 1);
            else two_panels(a + i * a_row, a_row, b + j * depth, depth, sums, 0);
            for (long r = 0; r < MIN(32, rows - i); r++) UNROLL for (int p = 0; p < 2; p++)
                finish((vec *)(sums + r * 32 + p * PANEL), bias + j + p * PANEL,
                       (char *)to + ((i + r) * to_row + j + p * PANEL) * to_size, then, 1);
        }
}
#endif

/* Rows `a` (rows, depth) times a packed matrix (depth, columns). */
INLINE void product(const void *a, long a_row, const void *b, const float *bias, void *to, long to_row, long rows,
                    long depth, long columns, Then then, int in_half) {
    const int size = in_half ? 2 : 4, to_size = in_half && then == RELU ? 2 : 4;
#if HAS_TILES
    if (in_half) {
        product_by_tiles(a, a_row, b, bias, to, to_row, to_size, rows, depth, columns, then);
        return;
    }
#endif
    for (long j = 0; j < columns; j += GROUP * PANEL) {
        const void *panels = (const char *)b + j * depth * size;
        for (long i = 0; i < rows; i += TALL) {
            const void *from = (const char *)a + i * a_row * size;
            void *into = (char *)to + (i * to_row + j) * to_size;
#define ROWS(n) some_rows(from, a_row, panels, depth, bias + j, into, to_row, to_size, then, in_half, n)
            switch (MIN(TALL, rows - i)) {
            case 1: ROWS(1); break;
            case 2: ROWS(2); break;
            case 3: ROWS(3); break;
            case 4: ROWS(4); break;
            case 5: ROWS(5); break;
            default: ROWS(6);
            }
#undef ROWS
        }
    }
}

/* ---- attention */

/* e to the power of x, x <= 0, off by 3e-7 of it near 0 and 4e-6 far below: 2^(a whole number) times a polynomial of what is left. */
INLINE vec exponential(vec x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    vec power = larger(x * 1.44269504f, all(-126.0f)), shifted = power + shift, rest = power - (shifted - shift);
    vec value = all(1.32647273e-3f); /* the polynomial that is nowhere far off 2^rest */
    value = value * rest + 9.67151277e-3f;
    value = value * rest + 5.55073374e-2f;
    value = value * rest + 2.40222421e-1f;
    value = value * rest + 6.93146978e-1f;
    value = value * rest + 1.0f;
    return (vec)((ivec)value + ((ivec)shifted << 23)); /* what was added is shifted out of it */
}

/* One head of one row: queries, keys and values (nodes, size) stand `apart` from each other in `qkv`. */
INLINE void head(const float *qkv, long apart, long nodes, int size, float scale, float *scratch, void *mixed, long dim,
                 int in_half) {
    const long padded = UP(nodes, PANEL);
    float *keys = scratch, *scores = keys + padded * size, *queries = scores + QUERIES * padded;
    const float *key = qkv + dim, *value = qkv + 2 * dim;
    memset(keys + (padded - PANEL) * size, 0, sizeof(float) * PANEL * size);
    for (long j = 0; j < nodes; j++) /* panels of 16 keys each */
        for (int d = 0; d < size; d++) keys[(j / PANEL * size + d) * PANEL + j % PANEL] = key[j * apart + d];
    memset(queries, 0, sizeof(float) * QUERIES * size);
    for (long first = 0; first < nodes; first += QUERIES) {
        const int count = MIN(QUERIES, nodes - first);
        for (int i = 0; i < count; i++)
            for (int d = 0; d < size; d++) queries[i * size + d] = scale * qkv[(first + i) * apart + d];
        vec sums[QUERIES * PARTS];
        for (long j = 0; j < padded; j += PANEL) {
            tile(queries, size, keys + j * size, PANEL, 0, size, sums, QUERIES, 1, 0);
            UNROLL for (int i = 0; i < QUERIES; i++) UNROLL for (int p = 0; p < PARTS; p++)
                *(vec *)(scores + i * padded + j + p * LANES) = sums[i * PARTS + p];
        }
        float total[QUERIES];
        for (int i = 0; i < QUERIES; i++) {
            float *row = scores + i * padded, most = -INFINITY;
            for (long j = nodes; j < padded; j++) row[j] = -INFINITY;
            vec high = *(vec *)row, sum = all(0);
            for (long j = LANES; j < padded; j += LANES) high = larger(high, *(vec *)(row + j));
            for (int p = 0; p < LANES; p++) most = high[p] > most ? high[p] : most;
            for (long j = 0; j < padded; j += LANES) {
                vec weight = exponential(*(vec *)(row + j) - most);
                *(vec *)(row + j) = weight;
                sum += weight;
            }
            total[i] = 0;
            for (int p = 0; p < LANES; p++) total[i] += sum[p];
        }
        for (int d = 0; d < size; d += PANEL) {
            tile(scores, padded, value + d, apart, 0, nodes, sums, QUERIES, 1, 0);
            for (int i = 0; i < count; i++) UNROLL for (int p = 0; p < PARTS; p++) {
                vec mean = sums[i * PARTS + p] / total[i];
                long place = (first + i) * dim + d + p * LANES;
#if HAS_HALF
                if (in_half) {
                    _mm256_storeu_si256((__m256i *)((half *)mixed + place), (__m256i)_mm512_cvtneps_pbh((__m512)mean));
                    continue;
                }
#endif
                *(vec *)((float *)mixed + place) = mean;
            }
        }
    }
}

/* ---- layers */

INLINE void one_layer(float *x, long rows, long length, const Layer *w, long dim, long heads, long hidden, float scale,
                      float *scratch, int in_half) {
    const long tokens = rows * length, room = UP(tokens, 32);
    float *qkv = scratch, *mixed = qkv + room * 3 * dim, *inner = mixed + room * dim, *own = inner + BLOCK * hidden;
    void *input = x;
#if HAS_HALF
    if (in_half) to_half(x, input = (half *)mixed, tokens * dim); /* not needed any more once there is something mixed */
#endif
    product(input, dim, w->qkv, w->out_bias, qkv, 3 * dim, tokens, dim, 3 * dim, STORE, in_half);
    const int size = dim / heads;
    for (long row = 0; row < rows; row++)
        for (long h = 0; h < heads; h++) {
            void *to = (char *)mixed + (row * length * dim + h * size) * (in_half ? 2 : 4);
            head(qkv + row * length * 3 * dim + h * size, 3 * dim, length, size, scale, own, to, dim, in_half);
        }
    for (long first = 0; first < tokens; first += BLOCK) {
        const long count = MIN(BLOCK, tokens - first);
        float *y = x + first * dim;
        const void *seen = (char *)mixed + first * dim * (in_half ? 2 : 4);
        product(seen, dim, w->out, w->out_bias, y, dim, count, dim, dim, ADD, in_half);
        input = y;
#if HAS_HALF
        if (in_half) to_half(y, input = (half *)own, count * dim);
#endif
        product(input, dim, w->ff_in, w->ff_in_bias, inner, hidden, count, dim, hidden, RELU, in_half);
        product(inner, hidden, w->ff_out, w->ff_out_bias, y, dim, count, hidden, dim, ADD, in_half);
    }
}

/* Whether bfloat16 numbers can be asked for. */
int lehd_half(void) {
#if HAS_TILES
    const long ask_for = 0x1023, tiles = 18; /* ARCH_REQ_XCOMP_PERM: Linux gives a process its matrix units if it asks */
    return !syscall(SYS_arch_prctl, ask_for, tiles);
#else
    return HAS_HALF;
#endif
}

/* Rows that go through the layers together. */
static long rows_together(long length) { return CHUNK / length > 1 ? CHUNK / length : 1; }

/* Numbers of single precision that the work on such rows needs. */
long lehd_room(long rows, long length, long dim, long heads, long hidden) {
    const long together = MIN(rows, rows_together(length)), padded = UP(length, PANEL);
    const long one_head = padded * (dim / heads) + QUERIES * (padded + dim / heads), as_half = BLOCK * dim;
    return UP(together * length, 32) * 4 * dim + BLOCK * hidden + (one_head > as_half ? one_head : as_half);
}

static void in_single(float *x, long rows, long length, const Layer *w, long dim, long heads, long hidden, float scale, float *scratch) {
    one_layer(x, rows, length, w, dim, heads, hidden, scale, scratch, 0);
}

static void in_half(float *x, long rows, long length, const Layer *w, long dim, long heads, long hidden, float scale, float *scratch) {
    one_layer(x, rows, length, w, dim, heads, hidden, scale, scratch, 1);
}

/* x (rows, length, dim) through the layers, to y. */
void lehd_layers(const float *x, float *y, long rows, long length, const Layer *layers, long depth, long dim, long heads, long hidden,
                 float scale, int halves, float *scratch) {
    const long together = rows_together(length), row_size = length * dim;
#if HAS_TILES
    Tiles before, tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) tiles.bytes[i] = 64, tiles.rows[i] = 16;
    if (halves) {
        IN_MEMORY;
        _tile_storeconfig(&before);
        _tile_loadconfig(&tiles);
    }
#endif
    for (long row = 0; row < rows; row += together) {
        const long count = MIN(together, rows - row);
        float *here = y + row * row_size;
        memcpy(here, x + row * row_size, sizeof(float) * count * row_size);
        for (long number = 0; number < depth; number++)
            (halves ? in_half : in_single)(here, count, length, layers + number, dim, heads, hidden, scale, scratch);
    }
#if HAS_TILES
    if (halves) { /* as others left them */
        if (before.palette) _tile_loadconfig(&before);
        else _tile_release();
    }
#endif
}
