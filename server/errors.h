/*
 * errors.h - what a status is to a client: one table for the server's answers and the command's
 * error objects.
 */
#ifndef SERVER_ERRORS_H
#define SERVER_ERRORS_H

#include "nepit.h"

struct client_error {
    int code; /* of HTTP. What a client did wrong is 4xx: trainers send a 500 again */
    const char *type;
};
struct client_error client_error_of(np_status status);

#endif
