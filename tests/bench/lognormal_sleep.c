/* Sleeps for MEDIAN seconds times exp(SPREAD z), z standard normal, and times SLOWER where the
   environment has that: usage lognormal_sleep MEDIAN SPREAD. */

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static double uniform(void)
{
    unsigned long bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        abort();
    return ((double)(bits >> 11) + 0.5) / 9007199254740992.0;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    const char *slower = getenv("SLOWER");
    const double normal = sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
    const double seconds = atof(words[1]) * exp(atof(words[2]) * normal) * (slower ? atof(slower) : 1);
    const struct timespec time = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    return nanosleep(&time, NULL) != 0;
}
