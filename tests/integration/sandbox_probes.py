"""A worker whose only analyzer does what an exploited parser would do: it runs the probe that the message names.

A probe that is stopped raises OSError; a probe that returns was not stopped. Started as a program: first argument the
number of the user to run as (0: do not change), then the arguments of `mailwarden.pipeline.worker`.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mailwarden.analysis.view import View
from mailwarden.model.evidence import Finding
from mailwarden.pipeline import worker, worker_steps

Targets = dict[str, str]
PROBES: dict[str, Callable[[Targets], object]] = {}
ENDS_WORKER = ("execve", "i386_call")  # a probe that ends the process, whether it succeeds or is punished

_LIBC = ctypes.CDLL(None, use_errno=True)


def probe(function: Callable[[Targets], object]) -> Callable[[Targets], object]:
    PROBES[function.__name__] = function
    return function


def call(number: int, *arguments: object) -> int:
    returned = int(_LIBC.syscall(ctypes.c_long(number), *arguments))
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def checked(returned: int) -> None:
    if returned != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# --- network


@probe
def internet_socket(_):
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()


@probe
def datagram_socket(_):
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()


@probe
def netlink_socket(_):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


@probe
def packet_socket(_):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


@probe
def abstract_unix_socket(targets):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + targets["abstract"])


@probe
def unix_socket_pair(_):
    for end in socket.socketpair():
        end.close()


@probe
def io_uring(_):
    os.close(call(425, ctypes.c_uint(2), (ctypes.c_uint8 * 120)()))


# --- files


@probe
def read_configuration(targets):
    Path(targets["configuration"]).read_bytes()


@probe
def read_secret(targets):
    Path(targets["secret"]).read_bytes()


@probe
def read_spool_folder(targets):
    Path(targets["spool"]).read_bytes()


@probe
def read_spool_file_of_guard(targets):
    Path(targets["spooled"]).read_bytes()


@probe
def list_configuration_folder(targets):
    list(Path(targets["secret"]).parent.iterdir())


@probe
def read_users_of_the_host(_):
    Path("/etc/passwd").read_bytes()


@probe
def create_file(targets):
    Path(targets["folder"], "made").touch()


@probe
def create_shared_memory(_):
    path = Path("/dev/shm/mailwarden-probe")
    path.touch()
    path.unlink()


@probe
def create_folder(targets):
    Path(targets["folder"], "folder").mkdir()


@probe
def create_link(targets):
    Path(targets["folder"], "link").symlink_to("/")


@probe
def truncate_file(targets):
    os.truncate(targets["spare"], 0)


@probe
def change_mode(targets):
    Path(targets["spare"]).chmod(0o666)


@probe
def rename_file(targets):
    spare = Path(targets["spare"])
    spare.rename(spare.with_suffix(".renamed")).rename(spare)


@probe
def remove_file(targets):
    Path(targets["doomed"]).unlink()


@probe
def anonymous_file(_):
    os.close(os.memfd_create("probe"))


@probe
def open_device(_):
    os.close(os.open("/dev/null", os.O_WRONLY))


# --- programs and processes


@probe
def fork(_):
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


@probe
def spawn(_):
    subprocess.run(["/bin/true"], check=True)


@probe
def posix_spawn(_):
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


@probe
def execve(_):
    os.execv("/bin/true", ["true"])


@probe
def signal_process(targets):
    os.kill(int(targets["victim"]), signal.SIGCONT)


@probe
def signal_parent(_):
    os.kill(os.getppid(), 0)


@probe
def signal_by_thread(targets):
    call(234, ctypes.c_int(int(targets["victim"])), ctypes.c_int(int(targets["victim"])), ctypes.c_int(0))


@probe
def signal_by_descriptor(targets):
    signal.pidfd_send_signal(os.pidfd_open(int(targets["victim"])), signal.SIGCONT)


@probe
def signal_by_owner_of_descriptor(targets):
    fcntl.fcntl(0, fcntl.F_SETOWN, int(targets["victim"]))


@probe
def read_environment_of_process(targets):
    Path(f"/proc/{targets['victim']}/environ").read_bytes()


@probe
def read_environment_of_parent(_):
    Path(f"/proc/{os.getppid()}/environ").read_bytes()


@probe
def read_command_of_process(targets):
    Path(f"/proc/{targets['victim']}/cmdline").read_bytes()


@probe
def open_memory_of_process(targets):
    Path(f"/proc/{targets['victim']}/mem").open("rb").close()


@probe
def follow_descriptor_of_parent(_):
    Path(f"/proc/{os.getppid()}/fd/0").readlink()


@probe
def trace_process(targets):
    victim = int(targets["victim"])
    checked(_LIBC.ptrace(0x4206, victim, None, None))  # PTRACE_SEIZE
    checked(_LIBC.ptrace(0x4207, victim, None, None))  # PTRACE_INTERRUPT
    os.waitpid(victim, 0x40000000)  # __WALL
    checked(_LIBC.ptrace(17, victim, None, None))  # PTRACE_DETACH


@probe
def read_process_memory(targets):
    room = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8)
    there = (ctypes.c_void_p * 2)(int(targets["address"]), 8)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    call(310, ctypes.c_long(int(targets["victim"])), vector, one, there, one, none)


@probe
def limit_of_other_process(targets):
    limits = (ctypes.c_uint64 * 2)(0, 0)
    checked(_LIBC.prlimit(int(targets["victim"]), resource.RLIMIT_CORE, limits, None))


# --- the kernel


@probe
def raise_limit(_):
    for soft in (32, 64):
        checked(_LIBC.setrlimit(resource.RLIMIT_NOFILE, (ctypes.c_uint64 * 2)(soft, 64)))


@probe
def mount(targets):
    checked(_LIBC.mount(b"none", targets["folder"].encode(), b"tmpfs", 0, None))
    checked(_LIBC.umount2(targets["folder"].encode(), 0))


@probe
def change_root(_):
    os.chroot("/")


@probe
def new_namespace(_):
    checked(_LIBC.unshare(0x04000000))  # CLONE_NEWUTS


@probe
def join_namespace(_):
    space = os.open("/proc/self/ns/uts", os.O_RDONLY)
    checked(_LIBC.setns(space, 0))


@probe
def bpf(_):
    attributes = (ctypes.c_uint32 * 32)(2, 4, 4, 1)  # BPF_MAP_TYPE_ARRAY, sizes of key and value, entries
    os.close(call(321, 0, attributes, ctypes.sizeof(attributes)))


@probe
def keyring(_):
    call(250, 0, ctypes.c_int(-3), 1)  # KEYCTL_GET_KEYRING_ID of the session


@probe
def performance_events(_):
    attributes = (ctypes.c_uint32 * 32)(1, 128)  # PERF_TYPE_SOFTWARE, size
    os.close(call(298, attributes, 0, ctypes.c_int(-1), ctypes.c_int(-1), 0))


@probe
def user_fault_descriptor(_):
    os.close(call(323, ctypes.c_int(1)))  # UFFD_USER_MODE_ONLY


@probe
def system_v_memory(_):
    checked(_LIBC.shmctl(_LIBC.shmget(0, 4096, 0o1600), 0, None))


@probe
def message_queue(_):
    call(240, b"mailwarden-probe", os.O_RDWR | os.O_CREAT, 0o600, None)
    call(241, b"mailwarden-probe")


@probe
def dumpable(_):
    checked(_LIBC.prctl(4, 1, 0, 0, 0))


@probe
def become_another_user(_):
    os.setresuid(-1, os.geteuid(), -1)


@probe
def i386_call(_):
    """Create a socket by the 32-bit entry of a 64-bit kernel, whose numbers a careless filter does not know."""
    code = bytes.fromhex("53 b8 67 01 00 00 bb 02 00 00 00 b9 01 00 00 00 31 d2 cd 80 5b c3")  # int 0x80, socket(2, 1)
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    if (returned := entry()) < 0:
        raise OSError(-returned, os.strerror(-returned))


@probe
def x32_call(_):
    os.close(call(0x40000000 + 41, 2, 1, 0))


# --- what must work


@probe
def needed_threads_and_imports(_):
    import threading
    import xmlrpc.client  # noqa: F401 - a module that nothing has loaded yet

    thread = threading.Thread(target=lambda: "x".encode("cp1140"))
    thread.start()
    thread.join()


@probe
def needed_text_recognition(_):
    from PIL import Image

    from mailwarden.files.text_recognition import languages, recognize

    if languages():  # an optional package
        recognize(Image.new("L", (300, 100), 255), languages()[0], 1_000)


@probe
def needed_empty_environment(_):
    if "MAILWARDEN_PROBE" in os.environ:
        raise OSError(errno.EEXIST, "the environment of the parent is here")


class ProbeAnalyzer:
    name = "probe"

    def examine(self, view: View) -> Iterator[Finding]:
        order = json.loads(view.message.parts[0].content)
        try:
            PROBES[order["probe"]](order)
        except OSError as error:
            yield Finding("probe", facts={"errno": errno.errorcode.get(error.errno or 0, "none")})


if __name__ == "__main__":
    if user := int(sys.argv.pop(1)):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    vars(worker_steps)["LOCAL"] = (ProbeAnalyzer(),)  # instead of the registry's
    worker.main()
