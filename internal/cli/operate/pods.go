// Package operate prints what the pods of groups write, and runs commands in them.
//
// It changes nothing. It refuses to know how pods are found, and why a group is as it is.
package operate

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

// Needs is what a user must be allowed to do.
const Needs = "get pods/log, and for exec create pods/exec"

// Command is a command about pods.
type Command interface {
	Flags(*pflag.FlagSet)
	Run(context.Context, *Target) error
}

// Target is the pods that a command is about, and how they are reached.
type Target struct {
	Pods []*corev1.Pod
	// Command runs in the first of them.
	Command []string
	Config  *rest.Config
	// IOStreams are written to as they are.
	genericiooptions.IOStreams
	HasColours bool
}
