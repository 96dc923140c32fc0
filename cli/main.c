#include "nepit.h"
int main(void) { return 0; }
