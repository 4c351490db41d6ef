#include "textflag.h"

// AVX2 forms of the kernels in kernels.go. Each lane does what one element of
// the portable loop does, in the same order; products are rounded before they
// are added (VMULPS then VADDPS, no FMA).

// func dotPanelAVX2(dst *float32, stride int, x *float32, n int, w *float32, rows int)
//
// Y0,Y1 .. Y6,Y7 are lanes 0..3 of dot4 for columns 0-7 and 8-15.
TEXT ·dotPanelAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ stride+8(FP), R8
	SHLQ $2, R8
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), R9
	MOVQ rows+40(FP), R10

dotRow:
	MOVQ w+32(FP), DX
	MOVQ R9, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7

dotFour:
	VBROADCASTSS (SI), Y8
	VBROADCASTSS 4(SI), Y9
	VMULPS (DX), Y8, Y10
	VMULPS 32(DX), Y8, Y11
	VMULPS 64(DX), Y9, Y12
	VMULPS 96(DX), Y9, Y13
	VBROADCASTSS 8(SI), Y8
	VBROADCASTSS 12(SI), Y9
	VADDPS Y10, Y0, Y0
	VADDPS Y11, Y1, Y1
	VADDPS Y12, Y2, Y2
	VADDPS Y13, Y3, Y3
	VMULPS 128(DX), Y8, Y10
	VMULPS 160(DX), Y8, Y11
	VMULPS 192(DX), Y9, Y12
	VMULPS 224(DX), Y9, Y13
	VADDPS Y10, Y4, Y4
	VADDPS Y11, Y5, Y5
	VADDPS Y12, Y6, Y6
	VADDPS Y13, Y7, Y7
	ADDQ $16, SI
	ADDQ $256, DX
	SUBQ $4, CX
	JNZ dotFour

	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VADDPS Y6, Y4, Y4
	VADDPS Y7, Y5, Y5
	VADDPS Y4, Y0, Y0
	VADDPS Y5, Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ R8, DI
	DECQ R10
	JNZ dotRow
	VZEROUPPER
	RET

// func dotPanelAVX512(dst *float32, stride int, x *float32, n int, w *float32, rows int)
//
// Z0 .. Z3 are lanes 0..3 of dot4 for all sixteen columns.
TEXT ·dotPanelAVX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ stride+8(FP), R8
	SHLQ $2, R8
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), R9
	MOVQ rows+40(FP), R10

dotRow512:
	MOVQ w+32(FP), DX
	MOVQ R9, CX
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2
	VPXORQ Z3, Z3, Z3

dotFour512:
	VBROADCASTSS (SI), Z4
	VBROADCASTSS 4(SI), Z5
	VBROADCASTSS 8(SI), Z6
	VBROADCASTSS 12(SI), Z7
	VMULPS (DX), Z4, Z8
	VMULPS 64(DX), Z5, Z9
	VMULPS 128(DX), Z6, Z10
	VMULPS 192(DX), Z7, Z11
	VADDPS Z8, Z0, Z0
	VADDPS Z9, Z1, Z1
	VADDPS Z10, Z2, Z2
	VADDPS Z11, Z3, Z3
	ADDQ $16, SI
	ADDQ $256, DX
	SUBQ $4, CX
	JNZ dotFour512

	VADDPS Z1, Z0, Z0
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ R8, DI
	DECQ R10
	JNZ dotRow512
	VZEROUPPER
	RET

// func weigh32AVX2(acc *float32, sum float32, e, values *float32, n int) float32
TEXT ·weigh32AVX2(SB), NOSPLIT, $0-44
	MOVQ acc+0(FP), DI
	VMOVSS sum+8(FP), X5
	MOVQ e+16(FP), SI
	MOVQ values+24(FP), DX
	MOVQ n+32(FP), CX
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3

weigh32:
	VBROADCASTSS (SI), Y6
	VMULPS (DX), Y6, Y8
	VMULPS 32(DX), Y6, Y9
	VMULPS 64(DX), Y6, Y10
	VMULPS 96(DX), Y6, Y11
	VADDSS X6, X5, X5
	VADDPS Y8, Y0, Y0
	VADDPS Y9, Y1, Y1
	VADDPS Y10, Y2, Y2
	VADDPS Y11, Y3, Y3
	ADDQ $4, SI
	ADDQ $128, DX
	DECQ CX
	JNZ weigh32

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVSS X5, ret+40(FP)
	VZEROUPPER
	RET

// func weigh40AVX2(acc *float32, sum float32, e, values *float32, n int) float32
TEXT ·weigh40AVX2(SB), NOSPLIT, $0-44
	MOVQ acc+0(FP), DI
	VMOVSS sum+8(FP), X5
	MOVQ e+16(FP), SI
	MOVQ values+24(FP), DX
	MOVQ n+32(FP), CX
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4

weigh40:
	VBROADCASTSS (SI), Y6
	VMULPS (DX), Y6, Y8
	VMULPS 32(DX), Y6, Y9
	VMULPS 64(DX), Y6, Y10
	VMULPS 96(DX), Y6, Y11
	VMULPS 128(DX), Y6, Y12
	VADDSS X6, X5, X5
	VADDPS Y8, Y0, Y0
	VADDPS Y9, Y1, Y1
	VADDPS Y10, Y2, Y2
	VADDPS Y11, Y3, Y3
	VADDPS Y12, Y4, Y4
	ADDQ $4, SI
	ADDQ $160, DX
	DECQ CX
	JNZ weigh40

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVSS X5, ret+40(FP)
	VZEROUPPER
	RET

// func maxAboveAVX2(x *float32, n int, floor float32) float32
//
// VMAXPS gives its second source unless the first is larger, so with the
// running maximum as second source a NaN never enters.
TEXT ·maxAboveAVX2(SB), NOSPLIT, $0-28
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTSS floor+16(FP), Y0

maxEight:
	VMOVUPS (SI), Y1
	VMAXPS Y0, Y1, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ maxEight

	VEXTRACTF128 $1, Y0, X1
	VMAXPS X0, X1, X0
	VPERMILPS $0x4e, X0, X1
	VMAXPS X0, X1, X0
	VPERMILPS $0xb1, X0, X1
	VMAXPS X0, X1, X0
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

DATA expLow<>+0(SB)/4, $-87.0
GLOBL expLow<>(SB), RODATA|NOPTR, $4

// 1/k! for k = 10..0, then 88, log2(e), 1/2, ln(2); bits as Go rounds them.
DATA expTab<>+0(SB)/8, $0x3e927e4fb7789f5c
DATA expTab<>+8(SB)/8, $0x3ec71de3a556c734
DATA expTab<>+16(SB)/8, $0x3efa01a01a01a01a
DATA expTab<>+24(SB)/8, $0x3f2a01a01a01a01a
DATA expTab<>+32(SB)/8, $0x3f56c16c16c16c17
DATA expTab<>+40(SB)/8, $0x3f81111111111111
DATA expTab<>+48(SB)/8, $0x3fa5555555555555
DATA expTab<>+56(SB)/8, $0x3fc5555555555555
DATA expTab<>+64(SB)/8, $0.5
DATA expTab<>+72(SB)/8, $1.0
DATA expTab<>+80(SB)/8, $1.0
DATA expTab<>+88(SB)/8, $88.0
DATA expTab<>+96(SB)/8, $1.4426950408889634
DATA expTab<>+104(SB)/8, $0.5
DATA expTab<>+112(SB)/8, $0.6931471805599453
DATA expTab<>+120(SB)/8, $1023
GLOBL expTab<>(SB), RODATA|NOPTR, $128

// HORNER takes one more term of the polynomial for both halves.
#define HORNER(off) \
	VBROADCASTSD off(R8), Y8; \
	VMULPD Y2, Y4, Y4; \
	VMULPD Y3, Y5, Y5; \
	VADDPD Y8, Y4, Y4; \
	VADDPD Y8, Y5, Y5

// func expShiftAVX2(dst, src *float32, shift float32, n int)
//
// Eight at a time: Y0 the argument, Y2,Y3 the remainders r, Y4,Y5 the
// polynomial, Y6,Y7 the powers of two n.
TEXT ·expShiftAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	VBROADCASTSS shift+16(FP), Y15
	MOVQ n+24(FP), CX
	LEAQ expTab<>(SB), R8
	VBROADCASTSS expLow<>(SB), Y14
	VBROADCASTSD 88(R8), Y13
	VBROADCASTSD 96(R8), Y12
	VBROADCASTSD 104(R8), Y11
	VBROADCASTSD 112(R8), Y10
	VPBROADCASTQ 120(R8), Y9

expEight:
	VMOVUPS (SI), Y0
	VSUBPS Y15, Y0, Y0
	VCVTPS2PD X0, Y2
	VEXTRACTF128 $1, Y0, X3
	VCVTPS2PD X3, Y3

	// y = 88 < x ? 88 : x, which keeps NaN
	VMINPD Y2, Y13, Y2
	VMINPD Y3, Y13, Y3

	// n = floor(y log2(e) + 1/2)
	VMULPD Y12, Y2, Y6
	VMULPD Y12, Y3, Y7
	VADDPD Y11, Y6, Y6
	VADDPD Y11, Y7, Y7
	VROUNDPD $9, Y6, Y6
	VROUNDPD $9, Y7, Y7

	// r = y - n ln(2)
	VMULPD Y10, Y6, Y4
	VMULPD Y10, Y7, Y5
	VSUBPD Y4, Y2, Y2
	VSUBPD Y5, Y3, Y3

	VBROADCASTSD (R8), Y4
	VMOVAPD Y4, Y5
	HORNER(8)
	HORNER(16)
	HORNER(24)
	HORNER(32)
	HORNER(40)
	HORNER(48)
	HORNER(56)
	HORNER(64)
	HORNER(72)
	HORNER(80)

	// times 2^n
	VCVTTPD2DQY Y6, X6
	VCVTTPD2DQY Y7, X7
	VPMOVSXDQ X6, Y6
	VPMOVSXDQ X7, Y7
	VPADDQ Y9, Y6, Y6
	VPADDQ Y9, Y7, Y7
	VPSLLQ $52, Y6, Y6
	VPSLLQ $52, Y7, Y7
	VMULPD Y6, Y4, Y4
	VMULPD Y7, Y5, Y5
	VCVTPD2PSY Y4, X4
	VCVTPD2PSY Y5, X5
	VINSERTF128 $1, X5, Y4, Y4

	// 0 where the argument is below -87 (ordered: not for NaN)
	VCMPPS $0x11, Y14, Y0, Y1
	VANDNPS Y4, Y1, Y4
	VMOVUPS Y4, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ expEight
	VZEROUPPER
	RET

// func decayReadAVX2(s *float32, alpha float32, k *[recK]float32, p *[recV]float32)
TEXT ·decayReadAVX2(SB), NOSPLIT, $0-32
	MOVQ s+0(FP), DI
	VBROADCASTSS alpha+8(FP), Y7
	MOVQ k+16(FP), SI
	MOVQ p+24(FP), DX
	MOVQ $32, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

decay:
	VBROADCASTSS (SI), Y6
	VMULPS (DI), Y7, Y2
	VMULPS 32(DI), Y7, Y3
	VMOVUPS Y2, (DI)
	VMOVUPS Y3, 32(DI)
	VMULPS Y6, Y2, Y2
	VMULPS Y6, Y3, Y3
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	ADDQ $4, SI
	ADDQ $64, DI
	DECQ CX
	JNZ decay
	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VZEROUPPER
	RET

// func writeReadAVX2(s *float32, k *[recK]float32, u *[recV]float32, q *[recK]float32, o *[recV]float32)
TEXT ·writeReadAVX2(SB), NOSPLIT, $0-40
	MOVQ s+0(FP), DI
	MOVQ k+8(FP), SI
	MOVQ u+16(FP), AX
	MOVQ q+24(FP), BX
	MOVQ o+32(FP), DX
	MOVQ $32, CX
	VMOVUPS (AX), Y4
	VMOVUPS 32(AX), Y5
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

write:
	VBROADCASTSS (SI), Y6
	VBROADCASTSS (BX), Y7
	VMULPS Y4, Y6, Y2
	VMULPS Y5, Y6, Y3
	VADDPS (DI), Y2, Y2
	VADDPS 32(DI), Y3, Y3
	VMOVUPS Y2, (DI)
	VMOVUPS Y3, 32(DI)
	VMULPS Y7, Y2, Y2
	VMULPS Y7, Y3, Y3
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	ADDQ $4, SI
	ADDQ $4, BX
	ADDQ $64, DI
	DECQ CX
	JNZ write
	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VZEROUPPER
	RET
