/* Preloaded into dlv and its children: counts the calls that change files below one folder, or
 * those that read them, and at the one it is told to, kills or interrupts the process group, lets
 * calls fail or writes a wrong bit. Or it writes down what each of them did, for who plays it again (SHIM_RECORD).
 *
 * The numbers live in a file that all processes map, so that a parent can set them for a child
 * that it has forked, and read them when the child is dead. SHIM_CONTROL names it, SHIM_BELOW
 * the folder. Output to descriptors 1 and 2 is counted but never fails. Writes through mmap
 * (SQLite's -shm, which is no durable state) and those inside libc escape. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, COUNT, BEFORE, MIDDLE, FAIL_FROM, FAIL_ONCE, SHORT_FROM, INTERRUPT, RECORD, SPOIL };
enum { PROCEED, DIE_HALFWAY, FAIL, CUT, WRONG };

struct control {
    int64_t mode, at, error, count, failed;
    int64_t reads;   /* whether reads are meant, not changes */
    int64_t retried; /* fsyncs of what an fsync was refused for: the data may be gone by then */
    char calls[1 << 16]; /* one letter per call, for the tests that look at the sequence */
};

static struct control *control;
static char below[PATH_MAX];
static size_t below_length;
static int journal = -1;

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("SHIM_CONTROL"), *folder = getenv("SHIM_BELOW");
    if (!file || !folder || strlen(folder) >= sizeof below) return;
    int descriptor = open(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) abort();
    void *place = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (place == MAP_FAILED) abort();
    strcpy(below, folder);
    below_length = strlen(below);
    control = place;
    close(descriptor);
    const char *record = getenv("SHIM_RECORD");
    if (record) journal = syscall(SYS_openat, AT_FDCWD, record,
                                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int inside(const char *path) {
    return strncmp(path, below, below_length) == 0;
}

static int fd_inside(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int path_inside(int folder, const char *path) {
    char here[PATH_MAX];
    if (path[0] == '/') return inside(path);
    if (folder != AT_FDCWD) return fd_inside(folder);
    return getcwd(here, sizeof here) && inside(here);
}

/* The whole path of a name in a folder. */
static void whole(int folder, const char *path, char *out) {
    char link[64];
    ssize_t length = 0;
    out[0] = 0;
    if (path && path[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(out, PATH_MAX)) abort();
            length = strlen(out);
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            length = readlink(link, out, PATH_MAX - 1);
            if (length < 0) abort();
            out[length] = 0;
        }
        strncat(out, "/", PATH_MAX - 1 - strlen(out));
    }
    if (path) strncat(out, path, PATH_MAX - 1 - strlen(out));
}

/* One line of the record: a letter, two numbers, and two stretches of bytes. */
static void note(char kind, uint64_t inode, uint64_t number, const void *one, size_t n,
                 const void *two, size_t m) {
    struct { uint32_t size, first; uint64_t inode, number; char kind, none[7]; } head;
    memset(&head, 0, sizeof head);
    head.size = n + m;
    head.first = n;
    head.inode = inode;
    head.number = number;
    head.kind = kind;
    char *all = malloc(sizeof head + n + m);
    if (!all) abort();
    memcpy(all, &head, sizeof head);
    if (n) memcpy(all + sizeof head, one, n);
    if (m) memcpy(all + sizeof head + n, two, m);
    ssize_t done = syscall(SYS_write, journal, all, sizeof head + n + m); /* at once: O_APPEND */
    if (done != (ssize_t)(sizeof head + n + m)) abort();
    free(all);
}

static int recording(void) {
    return control && control->mode == RECORD && journal >= 0;
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

/* What was written, read back: however it got there. `at` < 0: up to where the file stands now. */
static void note_written(int fd, int64_t at, ssize_t n) {
    int kept = errno;
    if (n > 0 && recording()) {
        if (fd == 1 || fd == 2) {
            if (fd == 1) note('A', 0, n, NULL, 0, NULL, 0);
        } else if (fd_inside(fd)) {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (at < 0) at = lseek(fd, 0, SEEK_CUR) - n;
            int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
            char *data = malloc(n);
            if (again < 0 || !data || syscall(SYS_pread64, again, data, n, at) != n) abort();
            syscall(SYS_close, again);
            note('w', inode_of(fd), at, data, n, NULL, 0);
            free(data);
        }
    }
    errno = kept;
}

/* One bit in the midst of what was written is another one on the disk. Not in a database, whose
 * pages SQLite has in its own memory and does not read again. */
static void spoil(int fd, int64_t at, ssize_t n) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (n <= 0 || length < 0) return;
    path[length] = 0;
    if (strstr(path, ".db")) return;
    int kept = errno;
    if (at < 0) at = lseek(fd, 0, SEEK_CUR) - n;
    at += n / 2;
    unsigned char byte;
    int again = syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC);
    if (again < 0 || syscall(SYS_pread64, again, &byte, 1, at) != 1) abort();
    byte ^= 4;
    if (syscall(SYS_pwrite64, again, &byte, 1, at) != 1) abort();
    syscall(SYS_close, again);
    control->failed++;
    errno = kept;
}

/* Whether this may be the same open file that was refused before. SQLite has its own ways. */
static int refused_fd = -1;
static uint64_t refused_inode;

static void note_refused(int fd) {
    int kept = errno;
    refused_fd = fd;
    refused_inode = inode_of(fd);
    errno = kept;
}

static void note_retried(int fd) {
    char link[64], path[PATH_MAX];
    if (fd != refused_fd || inode_of(fd) != refused_inode) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (!strstr(path, ".db")) control->retried++;
}

static void note_synced(int fd, int result) {
    int kept = errno;
    if (!result && recording() && fd_inside(fd)) {
        struct stat found;
        if (!fstat(fd, &found)) note(S_ISDIR(found.st_mode) ? 'D' : 'F', found.st_ino, 0, 0, 0, 0, 0);
    }
    errno = kept;
}

static void note_size(char kind, int fd, uint64_t size, int result) {
    int kept = errno;
    if (!result && recording() && fd_inside(fd)) note(kind, inode_of(fd), size, 0, 0, 0, 0);
    errno = kept;
}

/* A change of names; `inode` of what the name stands for, where it is new. */
static void note_names(char kind, uint64_t inode, const char *one, const char *two, int result) {
    int kept = errno;
    if (!result && recording() && (inside(one) || (two && inside(two))))
        note(kind, inode, 0, one, strlen(one), two, two ? strlen(two) : 0);
    errno = kept;
}

static uint64_t inode_at(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

__attribute__((noreturn)) static void die(void) {
    kill(0, SIGKILL);
    for (;;) pause();
}

/* Whether calls of this kind are meant. */
static int meant(int reads) {
    return control && control->mode != OFF && control->reads == reads;
}

/* What is to happen to this call. `space`: a full disk refuses it. */
static int decide(char letter, int may_fail, int space) {
    int64_t number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    if (number <= (int64_t)sizeof control->calls) control->calls[number - 1] = letter;
    switch (control->mode) {
    case BEFORE:
        if (number == control->at) die();
        return PROCEED;
    case MIDDLE:
        return number == control->at ? DIE_HALFWAY : PROCEED;
    case FAIL_FROM:
    case FAIL_ONCE:
        if (control->mode == FAIL_FROM ? number < control->at : number != control->at)
            return PROCEED;
        if (!may_fail || (!space && control->error == ENOSPC)) return PROCEED;
        __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
        errno = (int)control->error;
        return FAIL;
    case INTERRUPT:
        if (number == control->at) kill(0, SIGINT);
        return PROCEED;
    case SHORT_FROM:
        return number >= control->at && may_fail ? CUT : PROCEED;
    case SPOIL:
        return number == control->at && may_fail ? WRONG : PROCEED;
    }
    return PROCEED;
}

/* Whether the call changes something below the folder is only asked when changes are meant. */
#define STEP(letter, relevant, may_fail, space)                                  \
    (meant(0) && (relevant) ? decide(letter, may_fail, space) : PROCEED)

#define REAL(type, name, ...)                                   \
    static type (*real)(__VA_ARGS__);                           \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* A call with a length: it may be done by half. */
#define SIZED(letter, descriptor, size, offset, call, half)                      \
    int output = descriptor == 1 || descriptor == 2;                             \
    int step = STEP(letter, output || fd_inside(descriptor), !output, 1);        \
    switch (step) {                                                              \
    case FAIL: return -1;                                                        \
    case DIE_HALFWAY: half; die();                                               \
    case CUT: if ((size) > 1) return half;                                       \
    }                                                                            \
    ssize_t done = call;                                                         \
    if (step == WRONG) spoil(descriptor, offset, done);                          \
    note_written(descriptor, offset, done);                                      \
    return done

/* A call that reads: dying before it or after it is all the same. */
#define READS(descriptor, size, call, half)                                      \
    switch (meant(1) && fd_inside(descriptor) ? decide('i', 1, 0) : PROCEED) {   \
    case FAIL: return -1;                                                        \
    case DIE_HALFWAY: die();                                                     \
    case CUT: if ((size) > 1) return half;                                       \
    }                                                                            \
    return call

/* A call that happens or does not. */
#define WHOLE(letter, relevant, space, call, told)                               \
    switch (STEP(letter, relevant, 1, space)) {                                  \
    case FAIL: return -1;                                                        \
    case DIE_HALFWAY: call; die();                                               \
    }                                                                            \
    int result = call;                                                           \
    told;                                                                        \
    return result

ssize_t write(int fd, const void *data, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    SIZED('w', fd, n, -1, real(fd, data, n), real(fd, data, n / 2));
}

#define PWRITE(name, offset_type)                                                \
    ssize_t name(int fd, const void *data, size_t n, offset_type at) {           \
        REAL(ssize_t, #name, int, const void *, size_t, offset_type);            \
        SIZED('p', fd, n, at, real(fd, data, n, at), real(fd, data, n / 2, at)); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    SIZED('v', fd, n, -1, real(fd, parts, n), real(fd, parts, n > 1 ? n / 2 : 1));
}

ssize_t read(int fd, void *data, size_t n) {
    REAL(ssize_t, "read", int, void *, size_t);
    READS(fd, n, real(fd, data, n), real(fd, data, n / 2));
}

#define PREAD(name, offset_type)                                                 \
    ssize_t name(int fd, void *data, size_t n, offset_type at) {                 \
        REAL(ssize_t, #name, int, void *, size_t, offset_type);                  \
        READS(fd, n, real(fd, data, n, at), real(fd, data, n / 2, at));          \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

ssize_t readv(int fd, const struct iovec *parts, int n) {
    REAL(ssize_t, "readv", int, const struct iovec *, int);
    READS(fd, n, real(fd, parts, n), real(fd, parts, n / 2));
}

#define PWRITEV(name, offset_type)                                               \
    ssize_t name(int fd, const struct iovec *parts, int n, offset_type at) {     \
        REAL(ssize_t, #name, int, const struct iovec *, int, offset_type);       \
        SIZED('v', fd, n, at, real(fd, parts, n, at),                            \
              real(fd, parts, n > 1 ? n / 2 : 1, at));                           \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define SENDFILE(name, offset_type)                                              \
    ssize_t name(int out, int in, offset_type *at, size_t n) {                   \
        REAL(ssize_t, #name, int, int, offset_type *, size_t);                   \
        SIZED('c', out, n, -1, real(out, in, at, n), real(out, in, at, n / 2));  \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    int64_t at = to ? *to : -1;
    SIZED('c', out, n, at, real(in, from, out, to, n, flags),
          real(in, from, out, to, n / 2, flags));
}

#define SYNCS(name)                                                              \
    int name(int fd) {                                                           \
        REAL(int, #name, int);                                                   \
        if (meant(0)) note_retried(fd);                                          \
        switch (STEP('s', fd_inside(fd), 1, 1)) {                                \
        case FAIL: note_refused(fd); return -1;                                  \
        case DIE_HALFWAY: real(fd); die();                                       \
        }                                                                        \
        int result = real(fd);                                                   \
        note_synced(fd, result);                                                 \
        return result;                                                           \
    }
SYNCS(fsync)
SYNCS(fdatasync)

#define TRUNCATE(name, offset_type)                                              \
    int name(int fd, offset_type n) {                                            \
        REAL(int, #name, int, offset_type);                                      \
        WHOLE('t', fd_inside(fd), 1, real(fd, n), note_size('t', fd, n, result)); \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define TRUNCATE_PATH(name, offset_type)                                         \
    int name(const char *path, offset_type n) {                                  \
        REAL(int, #name, const char *, offset_type);                             \
        if (recording() && path_inside(AT_FDCWD, path)) abort(); /* nobody does */ \
        WHOLE('t', path_inside(AT_FDCWD, path), 1, real(path, n), (void)0);      \
    }
TRUNCATE_PATH(truncate, off_t)
TRUNCATE_PATH(truncate64, off64_t)

#define ALLOCATE(name, offset_type)                                              \
    int name(int fd, offset_type at, offset_type n) {                            \
        REAL(int, #name, int, offset_type, offset_type);                         \
        switch (STEP('a', fd_inside(fd), 1, 1)) {                                \
        case FAIL: return errno; /* it returns the number itself */              \
        case DIE_HALFWAY: real(fd, at, n); die();                                \
        }                                                                        \
        int result = real(fd, at, n);                                            \
        note_size('a', fd, at + n, result);                                      \
        return result;                                                           \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

/* The whole paths of one or two names, known before the call. */
#define ONE(folder, path)                                                        \
    char one[PATH_MAX];                                                          \
    if (recording()) whole(folder, path, one)
#define TWO(from, old, to, new)                                                  \
    char two[PATH_MAX];                                                          \
    ONE(from, old);                                                              \
    if (recording()) whole(to, new, two)

int rename(const char *old, const char *new) {
    REAL(int, "rename", const char *, const char *);
    TWO(AT_FDCWD, old, AT_FDCWD, new);
    WHOLE('r', path_inside(AT_FDCWD, new), 1, real(old, new), note_names('r', 0, one, two, result));
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(int, "renameat", int, const char *, int, const char *);
    TWO(from, old, to, new);
    WHOLE('r', path_inside(to, new), 1, real(from, old, to, new),
          note_names('r', 0, one, two, result));
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    TWO(from, old, to, new);
    WHOLE('r', path_inside(to, new), 1, real(from, old, to, new, flags),
          note_names('r', 0, one, two, result));
}

int link(const char *old, const char *new) {
    REAL(int, "link", const char *, const char *);
    TWO(AT_FDCWD, old, AT_FDCWD, new);
    WHOLE('l', path_inside(AT_FDCWD, new), 1, real(old, new), note_names('l', 0, one, two, result));
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    TWO(from, old, to, new);
    WHOLE('l', path_inside(to, new), 1, real(from, old, to, new, flags),
          note_names('l', 0, one, two, result));
}

int symlink(const char *target, const char *path) {
    REAL(int, "symlink", const char *, const char *);
    ONE(AT_FDCWD, path);
    WHOLE('l', path_inside(AT_FDCWD, path), 1, real(target, path),
          note_names('y', recording() ? inode_at(one) : 0, one, target, result));
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    ONE(AT_FDCWD, path);
    WHOLE('u', path_inside(AT_FDCWD, path), 0, real(path), note_names('u', 0, one, NULL, result));
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    ONE(folder, path);
    WHOLE('u', path_inside(folder, path), 0, real(folder, path, flags),
          note_names('u', 0, one, NULL, result));
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    ONE(AT_FDCWD, path);
    WHOLE('u', path_inside(AT_FDCWD, path), 0, real(path), note_names('u', 0, one, NULL, result));
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    ONE(AT_FDCWD, path);
    WHOLE('m', path_inside(AT_FDCWD, path), 1, real(path, mode),
          note_names('m', recording() ? inode_at(one) : 0, one, NULL, result));
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    ONE(folder, path);
    WHOLE('m', path_inside(folder, path), 1, real(folder, path, mode),
          note_names('m', recording() ? inode_at(one) : 0, one, NULL, result));
}

/* A file that is opened to be made or emptied: noted as new, or as cut. */
static void note_opened(int fd, int flags, const char *path, uint64_t before) {
    if (fd < 0) return;
    uint64_t now = inode_of(fd);
    if (before != now) note_names('o', now, path, NULL, 0);
    else if (flags & O_TRUNC) note_size('t', fd, 0, 0);
}

#define MAKES(flags) ((flags) & (O_CREAT | O_TRUNC) || ((flags) & O_TMPFILE) == O_TMPFILE)
#define MODE(flags)                                                              \
    mode_t mode = 0;                                                             \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {               \
        va_list rest;                                                            \
        va_start(rest, flags);                                                   \
        mode = va_arg(rest, mode_t);                                             \
        va_end(rest);                                                            \
    }

#define OPENS(folder, call)                                                      \
    char one[PATH_MAX];                                                          \
    int noted = recording() && MAKES(flags) && path_inside(folder, path);        \
    uint64_t before = 0;                                                         \
    if (noted) {                                                                 \
        whole(folder, path, one);                                                \
        struct stat found;                                                       \
        before = stat(one, &found) ? 0 : found.st_ino;                           \
    }                                                                            \
    WHOLE('o', MAKES(flags) && path_inside(folder, path), 1, call,               \
          if (result == refused_fd) refused_fd = -1; /* another file now */           \
          if (noted) note_opened(result, flags, one, before))

#define OPEN(name)                                                               \
    int name(const char *path, int flags, ...) {                                 \
        REAL(int, #name, const char *, int, ...);                                \
        MODE(flags)                                                              \
        OPENS(AT_FDCWD, real(path, flags, mode));                                \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                             \
    int name(int folder, const char *path, int flags, ...) {                     \
        REAL(int, #name, int, const char *, int, ...);                           \
        MODE(flags)                                                              \
        OPENS(folder, real(folder, path, flags, mode));                          \
    }
OPENAT(openat)
OPENAT(openat64)
