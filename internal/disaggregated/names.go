package disaggregated

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Place is where a child belongs: a role of a slice at a revision.
type Place struct {
	Slice    int
	Revision string
	Role     string
}

// PlaceOf returns the place that the labels of a child, a Service or a pod say. An object without the label of a slice is
// of slice 0: other implementations made it before sets had slices.
func PlaceOf(object metav1.Object) Place {
	named := object.GetLabels()
	slice, _ := strconv.Atoi(named[dsv1.SliceLabelKey])
	return Place{slice, named[dsv1.RevisionLabelKey], named[dsv1.RoleLabelKey]}
}

// ChildName is the name of the LeaderWorkerSet of a place.
func ChildName(set string, p Place) string {
	return set + "-" + strconv.Itoa(p.Slice) + "-" + p.Revision + "-" + p.Role
}

// ServiceName is the name of the Service of a child.
func ServiceName(child string) string { return child + "-prv" }

// ScalerName is the name of the scaler of a role.
func ScalerName(set, role string) string { return set + "-" + role }

// Labels are those of everything that belongs to a place.
func Labels(set string, p Place) map[string]string {
	return map[string]string{
		dsv1.SetNameLabelKey: set, dsv1.RoleLabelKey: p.Role, dsv1.SliceLabelKey: strconv.Itoa(p.Slice), dsv1.RevisionLabelKey: p.Revision,
	}
}

// Selector selects the leaders of a role, in all its slices and revisions: one pod for each group.
func Selector(set, role string) string {
	return labels.Set{dsv1.SetNameLabelKey: set, dsv1.RoleLabelKey: role, lwsv1.WorkerIndexLabelKey: "0"}.String()
}

// Slices is the number of slices of a set.
func Slices(set *dsv1.DisaggregatedSet) int { return int(ptr.Deref(set.Spec.Slices, 1)) }

// IsExternal reports whether an autoscaler decides how many groups a role has.
func IsExternal(role *dsv1.DisaggregatedRole) bool {
	return role.Scaling != nil && role.Scaling.Mode == dsv1.ScalingExternal
}

// HasPolicy reports whether a policy says what becomes of partners after a failure.
func HasPolicy(set *dsv1.DisaggregatedSet, policy string) bool {
	return set.Annotations[dsv1.RestartPolicyAnnotationKey] == policy
}

// SetRef returns the incarnation of the set.
func SetRef(set *dsv1.DisaggregatedSet) identity.Ref {
	return identity.RefOf(identity.KindDisaggregatedSet, set)
}

// ownedBy is the reference that makes the set the controller of an object.
func ownedBy(set *dsv1.DisaggregatedSet, blocks bool) []metav1.OwnerReference {
	owner := metav1.OwnerReference{
		APIVersion: dsv1.GroupVersion.String(), Kind: string(identity.KindDisaggregatedSet), Name: set.Name, UID: set.UID, Controller: new(true),
	}
	if blocks {
		owner.BlockOwnerDeletion = new(true)
	}
	return []metav1.OwnerReference{owner}
}
