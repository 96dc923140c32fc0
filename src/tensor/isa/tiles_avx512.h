/*
 * tiles_avx512.h - the tiles of the AVX-512 levels. 32 registers: a block of 6 rows takes all four
 * tiles of a panel (24 sums, four vectors of weights, one of x), so that each value of x is loaded
 * once per panel.
 */
#define WIDE_TILES(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
#define INT16_WIDE_TILES WIDE_TILES
#define DIRECT_WIDE_TILES(X) X(1, 4) X(2, 4) X(3, 2) X(4, 2)
