/* generate.h - the two halves of generate: how it asks (cmd_generate.c), what it prints
 * (generated.c). */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "requests.h"

/* A text that grows on standard output; one choice after the other. */
np_status generated_stream(struct cli *cli, const struct question *question, np_result *result,
                           np_error *err);

/* As struct asker has them. The table is what stands behind a streamed text. */
np_status generated_json(struct cli *cli, struct question *question, np_result *result,
                         np_error *err);
np_status generated_table(struct cli *cli, struct question *question, np_result *result,
                          np_error *err);

#endif
