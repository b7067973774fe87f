// User interrupts (Sapphire Rapids and later). Mainline Linux has no system calls for them, and trees that do have
// given them different numbers, some of which mean something else elsewhere. Nothing is therefore called unless the CPU
// has the feature and the user says which numbers the kernel has.
#include <cstdlib>

#include "threads/timer_thread.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>

extern "C" {
void gnt_uintr_entry();
/// The interrupted stack pointer and program counter; every register has been saved.
[[gnu::used]] void gnt_uintr_tick(const void* sp, const void* pc) {
    if (auto* lane = gnomon::threads::self(); lane != nullptr) lane->interrupt(sp, pc, lane->usual_mask);
}
[[gnu::used]] std::uint64_t gnt_xsave_bytes = 0;
}

// At entry the stack holds the vector, rip, rflags and rsp. The instructions that older assemblers do not know are
// bytes.
asm(R"(
    .text
    .p2align 4
    .globl gnt_uintr_entry
    .hidden gnt_uintr_entry
    .type gnt_uintr_entry, @function
gnt_uintr_entry:
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbx
    movq %rsp, %rbx
    cld
    subq gnt_xsave_bytes(%rip), %rsp
    andq $-64, %rsp
    leaq 512(%rsp), %rdi        # the header has to be zero
    xorl %eax, %eax
    movl $8, %ecx
    rep stosq
    movl $-1, %eax
    movl $-1, %edx
    xsave64 (%rsp)
    movq 112(%rbx), %rdi        # rsp: ten registers, the vector, rip, rflags
    movq 88(%rbx), %rsi         # rip
    call gnt_uintr_tick
    movl $-1, %eax
    movl $-1, %edx
    xrstor64 (%rsp)
    movq %rbx, %rsp
    popq %rbx
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
    addq $8, %rsp
    .byte 0xf3, 0x0f, 0x01, 0xec    # uiret
    .size gnt_uintr_entry, .-gnt_uintr_entry
    .hidden gnt_xsave_bytes
    .hidden gnt_uintr_tick
)");

namespace gnomon::threads {
namespace {

/// In the order of the system calls.
enum Call : long { register_handler, unregister_handler, vector_fd, register_sender, unregister_sender };

long first_call() {
    const char* given = std::getenv("GNOMON_UINTR_SYSCALL");
    const long number = given == nullptr ? 0 : std::strtol(given, nullptr, 10);
    return number > 0 && number < 10'000 ? number : 0;
}

long call(Call which, auto... arguments) { return syscall(first_call() + which, arguments...); }

class Uintr final : public TimerThread {
public:
    ~Uintr() override { end(); }
    [[nodiscard]] const char* name() const override { return "uintr"; }
    [[nodiscard]] bool cuts_anywhere() const override { return true; }

    void attach(Lane& lane) override {
        install_handlers();
        unsigned a = 0, b = 0, c = 0, d = 0;
        __cpuid_count(13, 0, a, b, c, d);
        gnt_xsave_bytes = b + 64;
        lane.interrupt_index = -1;
        if (call(register_handler, &gnt_uintr_entry, 0) < 0)
            throw std::runtime_error("uintr: the kernel refused the handler");
        lane.interrupt_fd = static_cast<int>(call(vector_fd, 0, 0));
        unmask();
        TimerThread::attach(lane);
    }
    void detach(Lane& lane) override {
        TimerThread::detach(lane);
        asm volatile(".byte 0xf3, 0x0f, 0x01, 0xee" ::: "memory");  // clui
        if (lane.interrupt_fd >= 0) close(lane.interrupt_fd);
        call(unregister_handler, 0);
    }
    void unmask() override { asm volatile(".byte 0xf3, 0x0f, 0x01, 0xef" ::: "memory"); }  // stui

protected:
    void fire(Lane& lane) override {
        if (lane.interrupt_index < 0) lane.interrupt_index = call(register_sender, lane.interrupt_fd, 0);
        if (lane.interrupt_index < 0) return;
        asm volatile(".byte 0xf3, 0x0f, 0xc7, 0xf0" ::"a"(lane.interrupt_index) : "memory");  // senduipi rax
    }
};

}  // namespace

std::string why_no_uintr() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & (1U << 5)) == 0)
        return "this CPU has no user interrupts, or the hypervisor hides them";
    if (first_call() == 0)
        return "mainline Linux has no user interrupts; for a kernel that has them, set GNOMON_UINTR_SYSCALL to the "
               "number of "
               "its system call uintr_register_handler";
    return "";
}

std::unique_ptr<Source> make_uintr() { return std::make_unique<Uintr>(); }

}  // namespace gnomon::threads

#else

namespace gnomon::threads {

std::string why_no_uintr() { return "user interrupts are a feature of x86-64"; }
std::unique_ptr<Source> make_uintr() { return nullptr; }

}  // namespace gnomon::threads
#endif
