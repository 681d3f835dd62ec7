// Gives a container another CPU. As its first process it registers itself with the container's own
// binfmt_misc as what runs every program, then becomes the real first process; from then on the
// kernel starts it in front of each program, and it puts QEMU's user mode there.
//
// The registered pattern asks for zeros in the unused end of e_ident. QEMU's and this program's own
// copies carry another byte there, or they would be emulated in turn.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define BINFMT "/proc/sys/fs/binfmt_misc"

static ssize_t content(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY);
  ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
  if (length >= 0) text[length] = 0;
  close(file);
  return length;
}

static int failed(const char *what) {
  perror(what);
  return 126;
}

static int begin(char **command) {
  char entry[512];
  ssize_t length = content("/emulator/registration", entry, sizeof entry);
  if (length < 0) return failed("/emulator/registration");
  if (mount("binfmt_misc", BINFMT, "binfmt_misc", 0, NULL)) return failed("mount binfmt_misc");
  int file = open(BINFMT "/register", O_WRONLY);
  if (write(file, entry, length) != length) return failed(BINFMT "/register");
  close(file);
  execv(command[0], command);
  return failed(command[0]);
}

int main(int count, char **given) {
  if (getpid() == 1 && count > 2 && !strcmp(given[1], "--register")) return begin(given + 2);
  // By flag P of the registration: this program, the other one's path, its argv[0], and the rest.
  char model[256], **words = calloc(count + 4, sizeof *words);
  if (count < 3 || !words || content("/emulator/model", model, sizeof model) < 0) return 126;
  char *first[] = {"qemu", "-cpu", model, "-0", given[2], given[1]};
  memcpy(words, first, sizeof first);
  memcpy(words + 6, given + 3, (count - 3) * sizeof *words);
  execv("/emulator/qemu", words);
  return failed("/emulator/qemu");
}
