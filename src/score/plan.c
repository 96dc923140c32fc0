#include "score/plan.h"
