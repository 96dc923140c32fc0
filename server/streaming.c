/*
 * streaming.c - what is new of a request. A part is bounded, so that a client which reads slowly
 * has little of its answer in memory twice.
 */
#include "streaming.h"
#include "base/utf8.h"

#define PART_CELLS 32768

/* So many rows or tokens make a part. */
static size_t part_rows(size_t n_cells)
{
    return n_cells >= PART_CELLS ? 1 : PART_CELLS / (n_cells + 1);
}

static bool next_rows(const struct heard *heard, struct told *told, struct part *part)
{
    const np_result *result = &heard->result;
    bool scored = result->scores || result->logprobs || result->top_ids || result->tail;
    size_t n = heard->n_rows;
    if (!result->scores && n > result->n_scored) n = result->n_scored;
    /* No row at all is told too, once it is sure. */
    bool none = heard->finished && heard->n_rows == 0 && result->n_candidates;
    if (!scored && !none) return false;
    if (n <= told->n_rows && !(none && !told->begun)) return false;
    size_t most = told->n_rows + part_rows(result->n_top + result->n_candidates);
    *part = (struct part){
        .kind = PART_ROWS, .from = told->n_rows, .to = n < most ? n : most, .first = !told->begun};
    told->begun = true;
    told->n_rows = part->to;
    part->last = heard->finished && part->to == n;
    return true;
}

/* What follows a prompt waits until all of its rows are told: clients read in that order, and the
 * engine may know the first tokens earlier. */
static bool rows_left(const struct heard *heard, const struct told *told)
{
    const np_result *result = &heard->result;
    bool scored = result->scores || result->logprobs || result->top_ids || result->tail;
    return scored && told->n_rows < (result->scores ? result->n_rows : result->n_scored);
}

/* A token a part, also where several are ready: what a client sees depends on no timing. */
static bool next_token(const np_generated *choice, struct told_choice *told, struct part *part)
{
    size_t n = choice->n_tokens, text_to = choice->n_text_bytes;
    bool ends = choice->finish != NP_NOT_FINISHED && !told->finished;
    if (n == told->n_tokens && text_to == told->n_text_bytes && !ends) return false;
    if (n > told->n_tokens + 1) {
        n = told->n_tokens + 1;
        if (choice->text_end && choice->text_end[n - 1] < text_to)
            text_to =
                choice->text_end[n - 1] - utf8_unfinished(choice->text, choice->text_end[n - 1]);
        if (text_to < told->n_text_bytes) text_to = told->n_text_bytes;
    }
    *part = (struct part){.kind = PART_CHOICE,
                          .from = told->n_tokens,
                          .to = n,
                          .text_from = told->n_text_bytes,
                          .text_to = text_to,
                          .first = !told->begun,
                          .last = ends && n == choice->n_tokens};
    told->begun = true;
    told->n_tokens = n;
    told->n_text_bytes = text_to;
    told->finished = told->finished || part->last;
    return true;
}

bool streaming_next(struct exchange *exchange, const struct heard *heard, bool finished,
                    struct part *part)
{
    for (size_t i = 0; i < exchange->n_requests; i++) {
        struct told *told = &exchange->told[i];
        bool found = next_rows(&heard[i], told, part);
        bool waits = !found && rows_left(&heard[i], told);
        size_t n_choices = heard[i].choices && !waits ? heard[i].result.n_choices : 0;
        for (size_t k = 0; !found && k < n_choices; k++) {
            found = next_token(&heard[i].choices[k], &told->choices[k], part);
            part->choice = k;
        }
        part->request = i;
        if (found) return true;
    }
    if (!finished || exchange->told_end) return false;
    exchange->told_end = true;
    *part = (struct part){.kind = PART_END, .first = true, .last = true};
    return true;
}
