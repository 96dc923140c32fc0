/*
 * tokenizer.h - text <-> ids, exactly as the model's own tokenizer does it.
 *
 * Text is bytes. Steps: added tokens are cut out (longest match first), the rest is normalised and
 * split by the model's rule, each piece becomes bytes, and byte-pair merges join them in order of
 * rank. Anything in a tokenizer file that is not implemented is refused by name: a wrong id is
 * worse than none.
 *
 * A tokenizer never changes after loading; any number of threads may use it.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/buf.h"
#include "format/modelfile.h"

#define TOKENIZER_MAX_TEXT_BYTES ((size_t)1 << 30)

struct tokenizer;

/* From a GGUF's tokenizer.ggml.* settings, or from tokenizer.json, or vocab.json + merges.txt, in
 * the folder (with tokenizer_config.json / special_tokens_map.json for BOS and EOS where needed).
 * *out is NULL with NP_OK where the model has no tokenizer at all. */
np_status tokenizer_open(const struct modelfile *file, struct tokenizer **out, np_error *err);
void tokenizer_close(struct tokenizer *tokenizer);

struct token_span {
    int32_t id;
    size_t begin, end;
}; /* bytes of the text */

struct encoding {
    struct token_span *tokens; /* freed by encoding_free */
    size_t n_tokens;
};
void encoding_free(struct encoding *encoding);

/* add_special: the tokenizer's own BOS/EOS rule. parse_special: added special tokens are found in
 * the text (else they are ordinary text). */
np_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                           bool add_special, bool parse_special, struct encoding *out,
                           np_error *err);

/* The same for a text that has parts of two kinds: where literal[i] is not 0, byte i is plain text,
 * and no special token that covers it is found. All else is as if the text had one kind; so a text
 * whose literal parts hold no special token has the ids that tokenizer_encode gives. literal:
 * [n_bytes], or NULL. */
np_status tokenizer_encode_parts(const struct tokenizer *tokenizer, const char *text,
                                 const unsigned char *literal, size_t n_bytes, bool add_special,
                                 bool parse_special, struct encoding *out, np_error *err);

/* For texts that come in pieces. *n_settled is the last known place where text[0..n_bytes) may be
 * cut whatever follows, 0 where there is none: the tokens of `text + anything` are, without BOS and
 * EOS, those of text[0..n_bytes) that end there or before, and then those of the rest encoded by
 * itself. (Not those of text[0..*n_settled): what follows may have decided how that was split.) */
np_status tokenizer_settled(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                            bool parse_special, size_t *n_settled, np_error *err);

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer); /* highest id + 1 */

/* Bytes of one token, as they stand in a text; NULL for an id that has none (a hole in the
 * vocabulary). */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *n_bytes);
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
/* [*n] what add_special puts before, or behind, a text. */
const int32_t *tokenizer_edge(const struct tokenizer *tokenizer, bool behind, size_t *n);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
bool tokenizer_adds_eos(const struct tokenizer *tokenizer);
const char *tokenizer_describe(
    const struct tokenizer *tokenizer); /* "byte-level BPE, splitting rule smollm" */

/* Chat templates of the file: the usual one, and the one for when tools are given. */
enum tokenizer_template { TOKENIZER_TEMPLATE, TOKENIZER_TEMPLATE_TOOLS, TOKENIZER_TEMPLATES };
/* Texts that a tokenizer has a name for; a template may ask for them. */
enum tokenizer_name {
    TOKENIZER_BOS,
    TOKENIZER_EOS,
    TOKENIZER_UNK,
    TOKENIZER_PAD,
    TOKENIZER_SEP,
    TOKENIZER_CLS,
    TOKENIZER_MASK,
    TOKENIZER_CLASS, /* "GPT2Tokenizer", of tokenizer_config.json */
    TOKENIZER_NAMES
};
extern const char *const tokenizer_names[TOKENIZER_NAMES]; /* "bos_token", ... */
/* Zero-terminated; NULL: the file has none. */
const char *tokenizer_template(const struct tokenizer *tokenizer, enum tokenizer_template which,
                               size_t *n_bytes);
const char *tokenizer_named(const struct tokenizer *tokenizer, enum tokenizer_name which);

#endif
