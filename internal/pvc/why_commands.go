package pvc

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// scale is the command after which a workload wants the claim no more, for kinds
// that scale. One that is idle and holds all the same has nothing to scale.
func scale(h Explained) string {
	if h.Phase != "" {
		return deletion(h.Object)
	}
	return scaleTo(h.Object, h.below)
}

// disownCommand is what a person types to keep a claim whose owner is gone.
func disownCommand(claim *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("kubectl patch pvc %s -n %s --type=merge -p '%s'", claim.Name, claim.Namespace, Disown)
}

func deletion(workload identity.Ref) string {
	return fmt.Sprintf("kubectl delete %s %s -n %s", resourceOf(workload), workload.Name, workload.Namespace)
}

// scaleTo is a command for kinds that are known by more than their description: others of
// the same name may scale otherwise, or not at all.
func scaleTo(workload identity.Ref, replicas int) string {
	kind := resourceOf(workload)
	switch kind {
	case "statefulset", "leaderworkerset", "deployment", "replicaset":
		return fmt.Sprintf("kubectl scale %s/%s -n %s --replicas=%d", kind, workload.Name, workload.Namespace, replicas)
	case "job", "cronjob", "jobset":
		return fmt.Sprintf(`kubectl patch %s %s -n %s --type=merge -p '{"spec":{"suspend":true}}'`, kind, workload.Name, workload.Namespace)
	case "daemonset":
		return deletion(workload)
	}
	return ""
}

// resourceOf is what kubectl calls the kind of a workload, with its group unless that goes
// without saying: by "job" it means that of batch, and acts upon one of that name.
func resourceOf(workload identity.Ref) string {
	kind := strings.ToLower(string(workload.Kind))
	group, _, found := strings.Cut(workload.APIVersion, "/")
	if !found {
		group = ""
	}
	switch group {
	case "", "apps", "batch", lwsv1.GroupVersion.Group, JobSet.Group:
		return kind
	}
	return kind + "." + group
}
