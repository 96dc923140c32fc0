/*
 * errors.c - see errors.h.
 */
#include "errors.h"

struct client_error client_error_of(np_status status)
{
    static const struct client_error errors[] = {[NP_EIO] = {400, "FileError"},
                                                 [NP_EFORMAT] = {400, "FormatError"},
                                                 [NP_EINPUT] = {400, "BadRequestError"},
                                                 [NP_ELIMIT] = {400, "BadRequestError"},
                                                 [NP_EUNSUPPORTED] = {400, "BadRequestError"},
                                                 [NP_ENUMERIC] = {422, "UnprocessableEntityError"},
                                                 [NP_ETIMEOUT] = {408, "RequestTimeoutError"},
                                                 [NP_ECANCELLED] = {499, "CancelledError"},
                                                 [NP_ENOMEM] = {503, "ServiceUnavailableError"}};
    size_t n = sizeof errors / sizeof errors[0];
    if ((size_t)status < n && errors[status].code) return errors[status];
    return (struct client_error){500, "InternalServerError"};
}
