/* Loaded into a server with LD_PRELOAD: syncs of files whose path has $FAIL_SYNC_OF in it fail
 * with EIO, one each time that the file $FAIL_SYNC_ONCE is made. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int call(const char *name, int fd)
{
    char link[64], path[4096];
    ssize_t length;
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (strstr(path, getenv("FAIL_SYNC_OF")) && unlink(getenv("FAIL_SYNC_ONCE")) == 0) {
            errno = EIO;
            return -1;
        }
    }
    return real(fd);
}

int fsync(int fd)
{
    return call("fsync", fd);
}

int fdatasync(int fd)
{
    return call("fdatasync", fd);
}
