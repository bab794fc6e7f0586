package lwstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Do carries out an action as the API server would. The error says which
// precondition did not hold.
func (s *FakeStore) Do(a action.Action) error {
	switch a := a.(type) {
	case action.Create:
		return s.create(a)
	case action.Apply:
		return s.apply(a)
	case action.Relabel:
		return s.relabel(a)
	case action.Tie:
		return s.tie(a)
	case action.Delete:
		return s.delete(a)
	case action.WriteStatus:
		return s.writeStatus(a)
	}
	return fmt.Errorf("no such action: %T", a)
}

func (s *FakeStore) of(ref identity.Ref) client.Object {
	return s.Objects[Name{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
}

// Alive tells whether the very incarnation is there and not on its way out.
func (s *FakeStore) Alive(ref identity.Ref) bool {
	found := s.of(ref)
	return found != nil && found.GetUID() == ref.UID && found.GetDeletionTimestamp() == nil
}

func (s *FakeStore) create(a action.Create) error {
	if !s.Alive(a.Owner) {
		return fmt.Errorf("owner %s is not alive", a.Owner)
	}
	if s.of(a.Target()) != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: string(a.Kind)}, a.Target().Name)
	}
	object, ok := a.Object.(client.Object)
	if !ok {
		return fmt.Errorf("%T is not an API object", a.Object)
	}
	added := Add(s, object)
	if pod, ok := added.(*corev1.Pod); ok {
		Admit(pod)
	}
	s.fillIn(added)
	return s.remember(a.Object, added, "lws")
}

// fillIn sets some of the fields that the API server sets where they are empty.
func (s *FakeStore) fillIn(object client.Object) {
	sts, ok := object.(*appsv1.StatefulSet)
	if !ok {
		return
	}
	if rolling := sts.Spec.UpdateStrategy.RollingUpdate; rolling != nil && s.WithoutMaxUnavailable {
		rolling.MaxUnavailable = nil
	}
	sts.Spec.RevisionHistoryLimit = Ptr[int32](10)
	template := &sts.Spec.Template.Spec
	template.RestartPolicy = corev1.RestartPolicyAlways
	for i := range template.Containers {
		template.Containers[i].TerminationMessagePath = "/dev/termination-log"
		template.Containers[i].ImagePullPolicy = corev1.PullIfNotPresent
	}
}

func (s *FakeStore) exactly(ref identity.Ref) (client.Object, error) {
	found := s.of(ref)
	switch {
	case found == nil:
		return nil, fmt.Errorf("%s is gone", ref)
	case found.GetUID() != ref.UID:
		return nil, fmt.Errorf("%s has another uid", ref)
	case found.GetResourceVersion() != ref.ResourceVersion:
		return nil, fmt.Errorf("%s has another version", ref)
	}
	return found, nil
}

// apply makes the fields of the action true, and takes away those that the same
// field owner applied before and no longer does.
func (s *FakeStore) apply(a action.Apply) error {
	if a.Adopter != nil && !s.Alive(*a.Adopter) {
		return fmt.Errorf("adopter %s is not alive", *a.Adopter)
	}
	if err := s.standing(a.Relies); err != nil {
		return err
	}
	found, err := s.exactly(a.Onto)
	if err != nil {
		return err
	}
	current, err := json.Marshal(found)
	if err != nil {
		return err
	}
	wanted, err := fields(a.Object)
	if err != nil {
		return err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(s.applied[owned(found, a.FieldOwner)], wanted, current)
	if err != nil {
		return err
	}
	merged, err := jsonpatch.MergePatch(current, patch)
	if err != nil {
		return err
	}
	after, _ := found.DeepCopyObject().(client.Object)
	zero(after)
	if err := json.Unmarshal(merged, after); err != nil {
		return err
	}
	if service, ok := after.(*corev1.Service); ok {
		if given, _ := a.Object.(*corev1.Service); given.Spec.Selector != nil { // an atomic map
			service.Spec.Selector = maps.Clone(given.Spec.Selector)
		}
	}
	s.fillIn(after)
	if !sameClaims(found, after) {
		return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind(), a.Onto.Name, field.ErrorList{
			field.Forbidden(field.NewPath("spec"), "updates to volumeClaimTemplates are forbidden"),
		})
	}
	if !sameSpec(found, after) {
		after.SetGeneration(found.GetGeneration() + 1)
	}
	s.Put(after)
	return s.remember(a.Object, after, a.FieldOwner)
}

// standing checks all that a write relies on.
func (s *FakeStore) standing(relied []action.Standing) error {
	for _, standing := range relied {
		var now []metav1.ObjectMeta
		for _, object := range All[client.Object](s.Objects) {
			if standing.Name != "" && object.GetName() != standing.Name {
				continue
			}
			if KindOf(object) == standing.Kind && labels.SelectorFromSet(standing.Labels).Matches(labels.Set(object.GetLabels())) {
				var meta metav1.PartialObjectMetadata
				_ = share(object, &meta)
				now = append(now, meta.ObjectMeta)
			}
		}
		if broken := standing.Broken(now); broken != "" {
			return errors.New(broken)
		}
	}
	return nil
}

func owned(object client.Object, owner string) string { return string(object.GetUID()) + "/" + owner }

func (s *FakeStore) remember(part action.Object, whole client.Object, owner string) error {
	encoded, err := fields(part)
	s.applied[owned(whole, owner)] = encoded
	return err
}

func zero(object client.Object) {
	switch object := object.(type) {
	case *appsv1.StatefulSet:
		*object = appsv1.StatefulSet{}
	case *appsv1.ControllerRevision:
		*object = appsv1.ControllerRevision{}
	case *corev1.Service:
		*object = corev1.Service{}
	case *unstructured.Unstructured:
		object.Object = nil
	}
}

// sameClaims tells whether two StatefulSets make the same claims: it never changes.
func sameClaims(a, b client.Object) bool {
	was, ok := a.(*appsv1.StatefulSet)
	is, ok2 := b.(*appsv1.StatefulSet)
	return !ok || !ok2 || equality.Semantic.DeepEqual(was.Spec.VolumeClaimTemplates, is.Spec.VolumeClaimTemplates)
}

func sameSpec(a, b client.Object) bool {
	was, ok := a.(*appsv1.StatefulSet)
	is, ok2 := b.(*appsv1.StatefulSet)
	return !ok || !ok2 || equality.Semantic.DeepEqual(was.Spec, is.Spec)
}

// fields are those that an object sets.
func fields(object action.Object) ([]byte, error) {
	set, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	delete(set, "status")
	if sts, ok := object.(*appsv1.StatefulSet); ok && sts.Spec.Selector == nil {
		spec, _ := set["spec"].(map[string]any)
		maps.DeleteFunc(spec, func(field string, _ any) bool {
			return field != "persistentVolumeClaimRetentionPolicy" && field != "replicas"
		})
		if len(spec) == 0 {
			delete(set, "spec")
		}
	}
	if service, ok := object.(*corev1.Service); ok && service.Spec.Selector == nil {
		delete(set, "spec")
	}
	if revision, ok := object.(*appsv1.ControllerRevision); ok && revision.Revision == 0 {
		delete(set, "revision")
	}
	prune(set)
	return json.Marshal(set)
}

func prune(set map[string]any) {
	for key, value := range set {
		switch value := value.(type) {
		case nil:
			delete(set, key)
		case map[string]any:
			prune(value)
		}
	}
}

func (s *FakeStore) relabel(a action.Relabel) error {
	if err := s.standing(a.Relies); err != nil {
		return err
	}
	found, err := s.exactly(a.Object)
	if err != nil {
		return err
	}
	after, _ := found.DeepCopyObject().(client.Object)
	relabelled := maps.Clone(found.GetLabels())
	maps.Copy(relabelled, a.Labels)
	maps.DeleteFunc(relabelled, func(_, value string) bool { return value == "" })
	after.SetLabels(relabelled)
	if revision, ok := after.(*appsv1.ControllerRevision); ok && a.Number != 0 {
		revision.Revision = a.Number
	}
	s.Put(after)
	return nil
}

func (s *FakeStore) tie(a action.Tie) error {
	if a.To != nil && !s.Alive(*a.To) {
		return fmt.Errorf("owner %s is not alive", *a.To)
	}
	if err := s.standing(a.Relies); err != nil {
		return err
	}
	found, err := s.exactly(a.Object)
	if err != nil {
		return err
	}
	tied, _ := found.DeepCopyObject().(client.Object)
	tied.SetOwnerReferences(slices.Clone(a.Owners))
	s.Put(tied)
	return nil
}

func (s *FakeStore) delete(a action.Delete) error {
	if a.OwnerGone != nil {
		if owner := s.of(*a.OwnerGone); owner != nil && owner.GetUID() == a.OwnerGone.UID {
			return fmt.Errorf("owner %s is there", a.OwnerGone)
		}
	}
	if err := s.standing(a.Relies); err != nil {
		return err
	}
	found, err := s.exactly(a.Object)
	if live := s.of(a.Object); a.AnyVersion && live != nil && live.GetUID() == a.Object.UID {
		found, err = live, nil
	}
	if err != nil {
		return err
	}
	s.Remove(found, metav1.DeletePropagationBackground)
	return nil
}

// Remove deletes an object as the API server does: pods that run somewhere, and
// what finalizers hold, only begin to go.
func (s *FakeStore) Remove(object client.Object, how metav1.DeletionPropagation) {
	going, _ := object.DeepCopyObject().(client.Object)
	switch how {
	case metav1.DeletePropagationForeground:
		going.SetFinalizers(append(going.GetFinalizers(), metav1.FinalizerDeleteDependents))
	case metav1.DeletePropagationOrphan:
		going.SetFinalizers(append(going.GetFinalizers(), metav1.FinalizerOrphanDependents))
	}
	pod, isPod := going.(*corev1.Pod)
	if len(going.GetFinalizers()) == 0 && (!isPod || pod.Spec.NodeName == "") {
		delete(s.Objects, NameOf(object))
		return
	}
	if going.GetDeletionTimestamp() == nil {
		going.SetDeletionTimestamp(&metav1.Time{Time: s.Now})
	}
	s.Put(going)
}

// Release takes a finalizer away, and the object with it when that was the last.
func (s *FakeStore) Release(object client.Object, finalizer string) {
	if !slices.Contains(object.GetFinalizers(), finalizer) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer })
	pod, isPod := object.(*corev1.Pod)
	if len(left) == 0 && object.GetDeletionTimestamp() != nil && (!isPod || pod.Spec.NodeName == "") {
		delete(s.Objects, NameOf(object))
		return
	}
	released, _ := object.DeepCopyObject().(client.Object)
	released.SetFinalizers(left)
	s.Put(released)
}

func (s *FakeStore) writeStatus(a action.WriteStatus) error {
	found, err := s.exactly(a.Set)
	if err != nil {
		return err
	}
	set, _ := found.DeepCopyObject().(*lwsv1.LeaderWorkerSet)
	set.Status = *a.Status.DeepCopy()
	if s.Prunes {
		set.Status.Started, set.Status.Restarts, set.Status.RestartsSince = nil, nil, nil
	}
	s.Put(set)
	return nil
}
