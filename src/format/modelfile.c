#include "format/modelfile.h"
