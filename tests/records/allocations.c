/* Counts the objects that Python makes: begin(), and end(), which returns how many. */

#include <Python.h>

static PyMemAllocatorEx before;
static long made;

static void *counted_malloc(void *context, size_t size)
{
    (void)context;
    made++;
    return before.malloc(before.ctx, size);
}

static void *counted_calloc(void *context, size_t count, size_t size)
{
    (void)context;
    made++;
    return before.calloc(before.ctx, count, size);
}

static void *passed_realloc(void *context, void *block, size_t size)
{
    (void)context;
    return before.realloc(before.ctx, block, size);
}

static void passed_free(void *context, void *block)
{
    (void)context;
    before.free(before.ctx, block);
}

void begin(void)
{
    PyMemAllocatorEx counting = {NULL, counted_malloc, counted_calloc, passed_realloc, passed_free};

    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &before);
    made = 0;
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &counting);
}

long end(void)
{
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &before);
    return made;
}
