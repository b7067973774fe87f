/* Writes down numbers, in a file that GNC_VISITS names. */
#include <stdio.h>
#include <stdlib.h>

void gnc_visit(long number) {
    static FILE *file;
    if (!file && getenv("GNC_VISITS")) file = fopen(getenv("GNC_VISITS"), "wb");
    if (file) fwrite(&number, sizeof number, 1, file);
}
