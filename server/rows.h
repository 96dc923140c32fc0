/*
 * rows.h - which row of a result scores a token; for the server and the command.
 */
#ifndef SERVER_ROWS_H
#define SERVER_ROWS_H

#include "nepit.h"

/* The row whose target is token i; -1: none. */
static inline int64_t row_of(const np_result *result, size_t i)
{
    if (i < result->start + 1 || i - result->start - 1 >= result->n_scored) return -1;
    return (int64_t)(i - result->start - 1);
}

#endif
