/*
 * template_run.c - statements, and a rendering as a whole.
 *
 * Names live in a chain of scopes: what is set in a loop, a macro or a block is gone behind it, and
 * every turn of a loop begins with what stands around it; if makes no scope. A macro sees the
 * scope that it was defined in.
 *
 * continue_final_message is done as transformers does it: a tag is put behind the content of the
 * last message, and the text is cut where the tag comes out. The tag has a source of its own, so
 * the same words in a message are not taken for it.
 */
#include "text/template_run.h"

#include <time.h>

/* ---- names ------------------------------------------------------------------------------------
 */

static struct binding *find_in(const struct scope *scope, const char *name)
{
    struct binding *at = scope->first;
    while (at && strcmp(at->name, name)) at = at->next;
    return at;
}

void scope_find(struct run *run, const char *name, struct value *out)
{
    const struct builtin *global;
    for (const struct scope *scope = run->scope; scope; scope = scope->parent) {
        const struct binding *found = find_in(scope, name);
        if (found) {
            *out = found->value;
            return;
        }
    }
    *out = value_undefined(name);
    global = global_find(name, strlen(name));
    if (global) *out = (struct value){.kind = VALUE_GLOBAL, .global = global};
}

np_status scope_set(struct run *run, struct scope *scope, const char *name, struct value value)
{
    struct binding *binding = find_in(scope, name);
    if (!binding) {
        binding = run_push(run, 1, sizeof *binding);
        if (!binding) return run->status;
        *binding = (struct binding){.name = name, .next = scope->first};
        scope->first = binding;
    }
    binding->value = value;
    return NP_OK;
}

static struct scope *push_scope(struct run *run, struct scope *parent)
{
    struct scope *scope = run_push(run, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

/* Sets what stands left of "=": a name, names, or an attribute of a namespace. */
static np_status assign(struct run *run, const struct node *target, struct value value)
{
    const struct list *list;
    struct value of;
    run->line = target->line;
    if (target->kind == NODE_NAME) return scope_set(run, run->scope, target->name, value);
    if (target->kind == NODE_ATTR) {
        struct value key;
        scope_find(run, target->a->name, &of);
        if (of.kind != VALUE_NAMESPACE)
            return RUN_ERROR(run, NP_EINPUT,
                             "only an attribute of a namespace can be set, and %s "
                             "is %s",
                             target->a->name, value_type(of));
        if (target->name[0] == '_')
            return RUN_ERROR(run, NP_EINPUT, "an attribute must not begin with _");
        TRY(text_new(run, target->name, strlen(target->name), SOURCE_TEMPLATE, &key));
        return dict_put(run, of.dict, key, value);
    }
    TRY(value_iterate(run, value, &list));
    size_t i = 0;
    for (const struct node *at = target->items; at; at = at->next, i++)
        if (i < list->n) TRY(assign(run, at, list->items[i]));
    if (i == list->n) return NP_OK;
    return RUN_ERROR(run, NP_EINPUT, "%zu values for %zu names", list->n, i);
}

/* ---- statements -------------------------------------------------------------------------------
 */

static np_status run_data(struct run *run, const struct node *node)
{
    return output_text(run, run->out, node->value.text);
}

static np_status run_print(struct run *run, const struct node *node)
{
    struct value value;
    TRY(eval(run, node->a, &value));
    run->line = node->line;
    return output_value(run, run->out, value);
}

static np_status run_if(struct run *run, const struct node *node)
{
    struct value is;
    for (;;) {
        TRY(eval(run, node->a, &is));
        if (value_true(is)) return run_body(run, node->items);
        if (!node->otherwise || node->otherwise->op != NODE_IF)
            return run_body(run, node->otherwise);
        node = node->otherwise; /* elif */
    }
}

static np_status run_set(struct run *run, const struct node *node)
{
    struct value value;
    TRY(eval(run, node->b, &value));
    return assign(run, node->a, value);
}

/* Runs a body in a scope of its own and gives what it writes. */
static np_status capture(struct run *run, const struct node *body, struct scope *parent,
                         struct value *out)
{
    struct scope *outer = run->scope, *scope = push_scope(run, parent);
    struct output *outside = run->out, output;
    if (!scope) return run->status;
    output_init(&output);
    run->scope = scope;
    run->out = &output;
    np_status status = run_body(run, body);
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    run->scope = outer;
    run->out = outside;
    return status;
}

static np_status run_set_block(struct run *run, const struct node *node)
{
    struct value value;
    TRY(capture(run, node->items, run->scope, &value));
    return assign(run, node->a, value);
}

static np_status run_scope(struct run *run, const struct node *node)
{
    struct scope *outer = run->scope;
    run->scope = push_scope(run, outer);
    np_status status = run->scope ? run_body(run, node->items) : run->status;
    run->scope = outer;
    return status;
}

static np_status define_macro(struct run *run, const struct node *node)
{
    struct macro *macro = run_push(run, 1, sizeof *macro);
    if (!macro) return run->status;
    *macro = (struct macro){node, run->scope};
    return scope_set(run, run->scope, node->name,
                     (struct value){.kind = VALUE_MACRO, .macro = macro});
}

static np_status run_jump(struct run *run, const struct node *node)
{
    run->jump = node->kind == NODE_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
    return NP_OK;
}

/* The elements that the loop's own "if" keeps. */
static np_status filter_items(struct run *run, const struct node *node, const struct list **list)
{
    struct value kept, *items, is;
    struct scope *outer = run->scope;
    size_t n = 0;
    TRY(value_list(run, (*list)->n, VALUE_LIST, &kept, &items));
    np_status status = NP_OK;
    for (size_t i = 0; i < (*list)->n && !status; i++) {
        run->scope = push_scope(run, outer);
        if (!run->scope) status = run->status;
        if (!status) status = assign(run, node->a, (*list)->items[i]);
        if (!status) status = eval(run, node->c, &is);
        if (!status && value_true(is)) items[n++] = (*list)->items[i];
    }
    run->scope = outer;
    struct list *filtered = (struct list *)kept.list;
    filtered->n = n;
    *list = filtered;
    return status;
}

static np_status run_turn(struct run *run, const struct node *node, const struct loop *loop)
{
    TRY(run_step(run, 1));
    TRY(scope_set(run, run->scope, "loop", (struct value){.kind = VALUE_LOOP, .loop = loop}));
    TRY(assign(run, node->a, loop->items->items[loop->at]));
    return run_body(run, node->items);
}

static np_status run_for(struct run *run, const struct node *node)
{
    struct value of;
    const struct list *list;
    struct scope *outer = run->scope;
    np_status status = NP_OK;
    TRY(eval(run, node->b, &of));
    run->line = node->line;
    TRY(value_iterate(run, of, &list));
    if (node->c) TRY(filter_items(run, node, &list));
    if (!list->n) return run_scope(run, &(struct node){.items = node->otherwise});
    struct loop *loop = run_push(run, 1, sizeof *loop);
    if (!loop) return run->status;
    *loop = (struct loop){.items = list, .depth = ++run->loop_depth};
    for (; loop->at < list->n && !status && run->jump != JUMP_BREAK; loop->at++) {
        run->jump = JUMP_NONE;
        run->scope = push_scope(run, outer);
        status = run->scope ? run_turn(run, node, loop) : run->status;
    }
    run->jump = JUMP_NONE;
    run->loop_depth--;
    run->scope = outer;
    return status;
}

np_status run_body(struct run *run, const struct node *body)
{
    static np_status (*const kinds[NODE_KINDS])(struct run *, const struct node *) = {
        [NODE_DATA] = run_data,      [NODE_PRINT] = run_print, [NODE_IF] = run_if,
        [NODE_FOR] = run_for,        [NODE_SET] = run_set,     [NODE_SET_BLOCK] = run_set_block,
        [NODE_MACRO] = define_macro, [NODE_SCOPE] = run_scope, [NODE_BREAK] = run_jump,
        [NODE_CONTINUE] = run_jump,
    };
    TRY(run_enter(run));
    np_status status = NP_OK;
    for (; body && !status && run->jump == JUMP_NONE; body = body->next) {
        run->line = body->line;
        status = run_step(run, 1);
        if (!status) status = kinds[body->kind](run, body);
    }
    run_leave(run);
    return status;
}

/* Sets the parameters of a macro: as given, by name, or by default. */
static np_status bind_parameters(struct run *run, const struct node *node,
                                 const struct arguments *arguments, struct scope *scope)
{
    size_t at = 0, n_named = 0;
    for (const struct node *p = node->a; p; p = p->next, at++) {
        struct value value = value_undefined(p->name);
        bool found = at < arguments->n_given;
        if (found) value = arguments->given[at];
        for (size_t i = 0; i < arguments->n_named; i++)
            if (!strcmp(arguments->named[i].name, p->name)) {
                if (found)
                    return RUN_ERROR(run, NP_EINPUT, "%s() has two values for %s", node->name,
                                     p->name);
                value = arguments->named[i].value;
                found = true;
                n_named++;
            }
        if (!found && p->a) TRY(eval(run, p->a, &value));
        TRY(scope_set(run, scope, p->name, value));
    }
    if (arguments->n_given > at || n_named < arguments->n_named)
        return RUN_ERROR(run, NP_EINPUT, "%s() has other parameters than are given", node->name);
    return NP_OK;
}

np_status run_macro(struct run *run, const struct macro *macro, const struct arguments *arguments,
                    struct value *out)
{
    struct scope *outer = run->scope, *scope = push_scope(run, macro->scope);
    if (!scope) return run->status;
    TRY(run_enter(run));
    uint32_t line = run->line;
    run->scope = scope;
    np_status status = bind_parameters(run, macro->node, arguments, scope);
    if (!status) status = capture(run, macro->node->items, scope, out);
    if (!status) run->line = line;
    run->scope = outer;
    run_leave(run);
    return status;
}

/* ---- a rendering ------------------------------------------------------------------------------
 */

static const char tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";
#define TAG_BYTES (sizeof tag - 1)

/* Puts the tag behind what is to be continued: the content, or the last text that it has. */
static np_status add_tag(struct run *run, const struct template *compiled, struct value messages,
                         const struct text **continued)
{
    const struct list *list = messages.list;
    struct value *content =
        compiled->reads_content ? dict_find(list->items[list->n - 1].dict, "content", 7) : NULL;
    const struct list *parts = content && content->kind == VALUE_LIST ? content->list : NULL;
    for (size_t i = parts ? parts->n : 0; i-- > 0;) {
        bool is_dict = parts->items[i].kind == VALUE_DICT;
        struct value *text = is_dict ? dict_find(parts->items[i].dict, "text", 4) : NULL;
        if (!text) continue;
        content = text;
        break;
    }
    if (!content || content->kind != VALUE_TEXT)
        return run->status = error_set(run->err, NP_EINPUT, "continue_final_message", NO_OFFSET,
                                       "the last message has no text to continue, or the template "
                                       "does not show it");
    struct value end;
    *continued = content->text;
    TRY(text_new(run, tag, TAG_BYTES, SOURCE_TAG, &end));
    return text_join(run, content->text, end.text, content);
}

/* Cuts the text where the tag came out; white space that the template took from behind it is taken
 * here too. */
static np_status cut_at_tag(struct run *run, const struct text *continued, struct value *value)
{
    const struct text *text = value->text;
    size_t at = text->n_bytes, last = text->n_runs;
    while (last > 0) {
        at -= text->runs[--last].n_bytes;
        if (text->runs[last].source == SOURCE_TAG) break;
    }
    struct value stripped;
    size_t from = text_strip_left(continued, NULL), to = text_strip_right(continued, NULL, from);
    TRY(text_slice(run, continued, from, to, &stripped));
    size_t n = text->runs[last].n_bytes;
    bool whole = text->runs[last].source == SOURCE_TAG && n >= TAG_BYTES - 1 &&
                 !memcmp(text->bytes + at, tag, TAG_BYTES - 1);
    if (!whole || text_find(text, 0, stripped.text) == SIZE_MAX)
        return run->status = error_set(run->err, NP_EINPUT, "continue_final_message", NO_OFFSET,
                                       "the last message is not in the text that the template "
                                       "makes of it");
    struct value head;
    TRY(text_slice(run, text, 0, at, &head));
    bool spaced = text->n_bytes - at >= TAG_BYTES && text->bytes[at + TAG_BYTES - 1] == ' ';
    return text_slice(run, head.text, 0, spaced ? at : text_strip_right(head.text, NULL, 0), value);
}

/* The variables that a template sees beside the caller's own. */
static np_status set_variables(struct run *run, const struct template_input *input,
                               struct value messages, const struct dict *variables)
{
    struct scope *scope = run->scope;
    TRY(scope_set(run, scope, "messages", messages));
    TRY(scope_set(run, scope, "add_generation_prompt", value_bool(input->add_generation_prompt)));
    TRY(scope_set(run, scope, "tools", value_none()));
    TRY(scope_set(run, scope, "documents", value_none()));
    for (size_t i = 0; i < input->n_tokens; i++) {
        struct value text;
        const struct template_token *token = &input->tokens[i];
        if (!token->text) continue;
        TRY(text_new(run, token->text, token->n_bytes, SOURCE_TEMPLATE, &text));
        TRY(scope_set(run, scope, token->name, text));
    }
    for (size_t i = 0; i < variables->n; i++) {
        const char *name = variables->pairs[i].key.text->bytes;
        if (!strcmp(name, "messages") || !strcmp(name, "add_generation_prompt"))
            return run->status = error_set(run->err, NP_EINPUT, "variables", NO_OFFSET,
                                           "%s is given apart", name);
        TRY(scope_set(run, scope, name, variables->pairs[i].value));
    }
    return NP_OK;
}

static np_status render(struct run *run, const struct template *compiled,
                        const struct template_input *input, struct value *out)
{
    struct value messages, variables;
    const struct text *continued = NULL;
    TRY(template_data(run, input, &messages, &variables));
    if (input->continue_final_message && input->add_generation_prompt)
        return run->status =
                   error_set(run->err, NP_EINPUT, "continue_final_message", NO_OFFSET,
                             "excludes add_generation_prompt: the last message is continued, or a "
                             "new one begun");
    if (input->continue_final_message) TRY(add_tag(run, compiled, messages, &continued));
    TRY(set_variables(run, input, messages, variables.dict));
    TRY(capture(run, compiled->body, run->scope, out));
    return continued ? cut_at_tag(run, continued, out) : NP_OK;
}

static np_status copy_out(const struct text *text, struct template_output *out, np_error *err)
{
    out->text = mem_alloc(text->n_bytes + 1, 1);
    out->is_data = mem_alloc(text->n_bytes + 1, 1);
    if (!out->text || !out->is_data) return error_nomem(err, "a chat template", text->n_bytes);
    memcpy(out->text, text->bytes, text->n_bytes);
    out->n_bytes = text->n_bytes;
    for (size_t i = 0, at = 0; i < text->n_runs; at += text->runs[i++].n_bytes) {
        size_t n = text->runs[i].n_bytes;
        if (text->runs[i].source != SOURCE_TEMPLATE) memset(out->is_data + at, 1, n);
        if (text->runs[i].source != SOURCE_LAST || !n) continue;
        if (!out->content_end) out->content_begin = at;
        out->content_end = at + n;
    }
    return NP_OK;
}

np_status template_render(const struct template *compiled, const struct template_input *input,
                          struct template_output *out, np_error *err)
{
    struct scope globals = {0};
    struct run run = {.err = err, .scope = &globals, .now = input->now};
    struct value value;
    *out = (struct template_output){0};
    if (!run.now) run.now = (int64_t)time(NULL);
    arena_init(&run.arena, TEMPLATE_MAX_MEMORY_BYTES);
    np_status status = render(&run, compiled, input, &value);
    if (!status) status = copy_out(value.text, out, err);
    arena_free(&run.arena);
    if (status) template_output_free(out);
    return status;
}

void template_output_free(struct template_output *out)
{
    if (!out) return;
    mem_free(out->text);
    mem_free(out->is_data);
    *out = (struct template_output){0};
}
