/* banned.h - functions that have no safe use here; included before every file of the project. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef alloca
#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof gets alloca

#endif
