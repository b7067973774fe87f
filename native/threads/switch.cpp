// Switching from one stack to another: what a function may expect to keep over a call is saved, and no more. The rest
// is the compiler's business at a poll, and the kernel's in the frame of a signal.
//
//     void gnt_switch(void** save, void* to)     saves the stack pointer, continues on the other stack
//     gnt_entry                                  where a new stack begins: gnt_begin(its first register)

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl gnt_switch
    .hidden gnt_switch
    .type gnt_switch, @function
gnt_switch:
    .cfi_startproc
    pushq %rbp
    pushq %rbx
    pushq %r15
    pushq %r14
    pushq %r13
    pushq %r12
    subq $8, %rsp
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    ldmxcsr (%rsp)
    fldcw 4(%rsp)
    addq $8, %rsp
    popq %r12
    popq %r13
    popq %r14
    popq %r15
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .cfi_endproc
    .size gnt_switch, .-gnt_switch

    .p2align 4
    .globl gnt_entry
    .hidden gnt_entry
    .type gnt_entry, @function
gnt_entry:
    .cfi_startproc
    .cfi_undefined rip
    movq %r12, %rdi
    call gnt_begin
    ud2
    .cfi_endproc
    .size gnt_entry, .-gnt_entry
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl gnt_switch
    .hidden gnt_switch
    .type gnt_switch, %function
gnt_switch:
    .cfi_startproc
    sub sp, sp, #176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    str x9, [sp, #160]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldr x9, [sp, #160]
    msr fpcr, x9
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    ret
    .cfi_endproc
    .size gnt_switch, .-gnt_switch

    .p2align 4
    .globl gnt_entry
    .hidden gnt_entry
    .type gnt_entry, %function
gnt_entry:
    .cfi_startproc
    .cfi_undefined x30
    mov x0, x19
    bl gnt_begin
    brk #1
    .cfi_endproc
    .size gnt_entry, .-gnt_entry
)");
#else
#error "stacks are switched on x86-64 and AArch64"
#endif
asm(".section .note.GNU-stack,\"\",%progbits\n.text");
