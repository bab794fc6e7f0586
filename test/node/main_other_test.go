//go:build !linux

package node

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(*testing.M) {
	if os.Getenv("LOCKSTEP_NODE") != "" {
		fmt.Fprintln(os.Stderr, "FAIL: a real node needs Linux; make test runs the same operator with simulated kubelets, on any system")
		os.Exit(1)
	}
}
