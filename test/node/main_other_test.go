//go:build !linux

package node

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(*testing.M) {
	if os.Getenv("LOCKSTEP_NODE") != "" {
		fmt.Fprintln(os.Stderr, "FAIL: a real node needs Linux; make test runs the same operator against simulated kubelets, and needs none of this")
		os.Exit(1)
	}
}
