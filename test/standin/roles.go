package standin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Labels and the annotation of DisaggregatedSets, as version 0.11 has them.
const (
	ofSet           = "disaggregatedset.x-k8s.io/name"
	ofRole          = "disaggregatedset.x-k8s.io/role"
	ofSlice         = "disaggregatedset.x-k8s.io/slice"
	ofRevision      = "disaggregatedset.x-k8s.io/revision"
	initialReplicas = "disaggregatedset.x-k8s.io/initial-replicas"
)

// RevisionOfRoles returns the revision that the reference implementation finds in the roles of a DisaggregatedSet.
func RevisionOfRoles(roles []dsv1.DisaggregatedRole) string {
	type entry struct {
		Name     string                     `json:"name"`
		Identity string                     `json:"groupIdentity,omitempty"`
		Template lwsv1.LeaderWorkerTemplate `json:"template"`
	}
	var all []entry
	for _, role := range roles {
		e := entry{Name: role.Name, Template: role.Spec.LeaderWorkerTemplate}
		if role.Spec.GroupIdentity == "Hash" {
			e.Identity = "Hash"
		}
		all = append(all, e)
	}
	text, _ := json.Marshal(all) // of strings and numbers
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}

// RoleSet returns the LeaderWorkerSet that the reference implementation creates for a role in slice 0. initial is how many
// groups it had when a rollout away from it began, or empty.
func RoleSet(set *dsv1.DisaggregatedSet, role *dsv1.DisaggregatedRole, initial string) *lwsv1.LeaderWorkerSet {
	revision := RevisionOfRoles(set.Spec.Roles)
	labels := map[string]string{
		ofSet: set.Name, ofRole: role.Name, ofSlice: "0", ofRevision: revision, "app": set.Name + "-0-" + role.Name,
	}
	child := &lwsv1.LeaderWorkerSet{
		TypeMeta: metav1.TypeMeta{APIVersion: lwsv1.GroupVersion.String(), Kind: "LeaderWorkerSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-0-%s-%s", set.Name, revision, role.Name), Labels: union(role.Metadata.Labels, labels),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: dsv1.GroupVersion.String(), Kind: "DisaggregatedSet", Name: set.Name, UID: set.UID, Controller: new(true)}},
		},
		Spec: *role.Spec.DeepCopy(),
	}
	if child.Annotations = union(role.Metadata.Annotations); initial != "" {
		child.Annotations[initialReplicas] = initial
	}
	template := &child.Spec.LeaderWorkerTemplate
	for _, pods := range []*corev1.PodTemplateSpec{template.LeaderTemplate, &template.WorkerTemplate} {
		if pods != nil {
			pods.Labels = union(pods.Labels, labels)
		}
	}
	return child
}
