package consequence

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/pvc"
)

// Fit compares what the change needs with what nodes have on which its pods may run. err says why they could not be read.
func (c *Consequence) Fit(nodes []corev1.Node, pods []corev1.Pod, err error) {
	if err != nil {
		c.Missing = err.Error()
		return
	}
	run := map[string][]*corev1.Pod{}
	for i := range pods {
		if pod := &pods[i]; !workload.HasEnded(pod) {
			run[pod.Spec.NodeName] = append(run[pod.Spec.NodeName], pod)
		}
	}
	fitting := 0
	free, holds := corev1.ResourceList{}, make([]bool, len(c.starts))
	for i := range nodes {
		node, fits := &nodes[i], false
		for n, pod := range c.starts {
			if mayRun(pod, node) {
				fits, holds[n] = true, holds[n] || len(beyond(requests(pod), node.Status.Allocatable)) == 0
			}
		}
		if fits {
			fitting++
			Add(free, beyond(node.Status.Allocatable, requests(run[node.Name]...)), 1)
		}
	}
	c.Free = AmountOf(0, free)
	c.Free.Nodes = fitting
	maps.DeleteFunc(c.Free.Accelerators, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, isUsed := c.Peak.Accelerators[name]
		return !isUsed
	})
	c.judge(free, holds)
}

// judge adds the waits for nodes. holds says of each pod that starts whether a node could have it if the node were empty.
func (c *Consequence) judge(free corev1.ResourceList, holds []bool) {
	if i := slices.Index(holds, false); i >= 0 {
		c.Waits = append(c.Waits, render.Wait{Reason: CodeNoNode, Message: fmt.Sprintf(
			"no node fits a %s, even an empty one: check its nodeSelector, affinity, tolerations and requests", []string{"leader", "worker"}[i])})
		return
	}
	lacks := beyond(c.needs, free)
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		needs, has := c.needs[name], free[name]
		c.Waits = append(c.Waits, render.Wait{Reason: CodeNoRoom, Message: fmt.Sprintf(
			"%s: %s more are needed at the peak, and %s are free on nodes that fit", name, needs.String(), has.String())})
	}
}

// mayRun reports whether a node is ready and not cordoned, and matches the nodeSelector, affinity and tolerations of a pod.
func mayRun(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	repels := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	_, isRepelled := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, repels, false)
	return pvc.IsReady(node) && matches && err == nil && !isRepelled && !node.Spec.Unschedulable
}

// requests is what pods request, and how many they are.
func requests(pods ...*corev1.Pod) corev1.ResourceList {
	total := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(len(pods)), resource.DecimalSI)}
	for _, pod := range pods {
		one := &corev1.PodTemplateSpec{Spec: pod.Spec}
		Add(total, gang.Resources(one, one, 1), 1)
	}
	return total
}

// Add adds a list so many times to another.
func Add(to, more corev1.ResourceList, times int) {
	for name, quantity := range more {
		sum, quantity := to[name], quantity.DeepCopy()
		quantity.Mul(int64(times))
		sum.Add(quantity)
		to[name] = sum
	}
}

// beyond is what a list has more than another.
func beyond(list, other corev1.ResourceList) corev1.ResourceList {
	more := corev1.ResourceList{}
	for name, rest := range list {
		rest = rest.DeepCopy()
		if rest.Sub(other[name]); rest.Sign() > 0 {
			more[name] = rest
		}
	}
	return more
}

// AmountOf returns how much some groups are.
func AmountOf(groups int, all corev1.ResourceList) *Amount {
	return &Amount{Groups: groups, Pods: all.Pods().Value(), Accelerators: gang.Accelerators(maps.Clone(all))}
}
