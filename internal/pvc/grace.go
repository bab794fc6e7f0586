package pvc

import (
	"slices"
	"strings"

	"lockstep.dev/lockstep/internal/identity"
)

// atOnce tells whether there is nothing to wait for: scaled down on purpose, with
// the word that what is left over is to be deleted.
func (v HoldView) atOnce() bool {
	if v.Grace <= 0 || v.NamespaceEnding {
		return true
	}
	for _, c := range v.World.Desire.of(v.Claim.Name) {
		if top, _ := v.World.Desire.top(c.want, v.World.Links); v.World.scaledAway(c, v.Claim) && v.wereOnly(top, c.want) {
			return true
		}
	}
	return false
}

// wereOnly tells whether the last holders of a claim were a workload and its pods, and
// nobody else: what others held may be on its way back.
func (v HoldView) wereOnly(workloads ...*Want) bool {
	last := ParseWords(v.Claim.Annotations[HoldersAnnotation]).Names
	for name := range strings.SplitSeq(last, ", ") {
		if !slices.ContainsFunc(workloads, func(w *Want) bool {
			return name == string(w.Workload.Kind)+"/"+w.Workload.Name || w.isNumberedPod(name) || v.World.wereWorkers(name, w)
		}) {
			return false
		}
	}
	return true
}

// isNumberedPod tells whether a holder bears the name of a pod that the workload makes:
// llama-0 or llama-0-1. llama-tool-7f9c is somebody else's.
func (w *Want) isNumberedPod(holder string) bool {
	pod, ok := strings.CutPrefix(holder, "Pod/")
	for numbers := 1; ok && numbers <= maxNumbers; numbers++ {
		if ofSeries, _ := (Series{Prefix: w.Workload.Name, Spans: make([]Span, numbers)}).covers(pod); ofSeries {
			return true
		}
	}
	return false
}

// wereWorkers tells whether a holder bears the name of the StatefulSet of a group's workers:
// that of their leader, which the claim was given to. It stands for itself for the moment
// in which its leader has gone and it has not.
func (w World) wereWorkers(holder string, of *Want) bool {
	leader := w.GoneOwner
	if of.Workload.Kind != identity.KindLeaderWorkerSet || leader == nil || leader.Kind != identity.KindPod {
		return false
	}
	return holder == string(identity.KindStatefulSet)+"/"+leader.Name && of.isNumberedPod("Pod/"+leader.Name)
}
