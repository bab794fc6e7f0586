// Package program runs a program as its users do, and tests what they rely on: that it ends when it is told to, and
// that it takes little memory whatever it reads.
package program
