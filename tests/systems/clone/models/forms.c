/* Reads messages, each behind its length in four bytes, and says of each what the parser finds: as it is used, which
 * knows forms of requests, and without that. Compiled with -DPROTOCOL. */
#include <stdio.h>
#include <stdlib.h>

#include "request.c"

const gnc_model gnc_the_model = {.protocol = PROTOCOL};

static void tell(int found, const gnc_request *r, const char *at) {
    printf("%d", found);
    if (found == 1)
        printf(" %u %u %u %ld %s %u %d%d%d%d", r->bytes, r->word, r->key_bytes, r->key ? (long)(r->key - at) : -1,
               r->text ? "text" : "drawn", r->text_bytes, r->is_get, r->has_version, r->is_head, r->ends);
}

int main(void) {
    unsigned char size[4];
    while (fread(size, 1, 4, stdin) == 4) {
        uint32_t have = (uint32_t)size[0] | (uint32_t)size[1] << 8 | (uint32_t)size[2] << 16;
        char *at = malloc(have + 1); /* exactly: reads beyond it are found by the sanitizer */
        gnc_request request;
        if (fread(at, 1, have, stdin) != have) return 1;
        tell(gnc_parse(at, have, &request), &request, at);
        printf("|");
        tell(have ? parse(at, have, &request) : 0, &request, at);
        printf("\n");
        free(at);
    }
    return 0;
}
