package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Get implements client.Reader.
func (s *Server) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	return s.Live().Get(ctx, key, into, opts...)
}

// List implements client.Reader.
func (s *Server) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return s.Live().List(ctx, into, opts...)
}

// Of returns the object with the name of ref, or nil.
func (s *Server) Of(ref identity.Ref) client.Object {
	return s.Objects[Name{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
}

// Request is a write that a client sent.
type Request struct {
	// Verb is create, apply, patch, delete or status.
	Verb string
	Of   Name
	// Body is the JSON of the apply or the patch.
	Body string
	// Owner is the field manager of a patch.
	Owner string
	// Waits reports whether later reads wait until the cache shows the write.
	Waits bool
}

// ask records a request, and returns why it is refused.
func (s *Server) ask(r Request) error {
	s.Requests = append(s.Requests, r)
	if s.Refuse != nil {
		return s.Refuse(r)
	}
	return nil
}

// Asked returns the requests of a verb.
func (s *Server) Asked(verb string) (asked []Request) {
	for _, r := range s.Requests {
		if r.Verb == verb {
			asked = append(asked, r)
		}
	}
	return asked
}

// Create implements client.Writer.
func (s *Server) Create(_ context.Context, object client.Object, opts ...client.CreateOption) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	var o client.CreateOptions
	o.ApplyOptions(opts)
	if err := s.ask(Request{Verb: "create", Of: NameOf(object), Waits: !o.DisableReadYourWritesConsistency}); err != nil {
		return err
	}
	return s.create(object, o.FieldManager)
}

func (s *Server) create(object client.Object, owner string) error {
	if s.Objects[NameOf(object)] != nil {
		return apierrors.NewAlreadyExists(resourceOf(object), object.GetName())
	}
	set := encoded(object)
	admitted, _ := object.DeepCopyObject().(client.Object)
	added := Add(s, s.admit(admitted))
	s.applied[owned(added, owner)] = pruned(set)
	return share(added, object)
}

// admit fills in some of the fields that the API server sets, and calls the webhook.
func (s *Server) admit(object client.Object) client.Object {
	if sts, ok := object.(*appsv1.StatefulSet); ok {
		if rolling := sts.Spec.UpdateStrategy.RollingUpdate; rolling != nil && s.WithoutMaxUnavailable {
			rolling.MaxUnavailable = nil
		}
		sts.Spec.RevisionHistoryLimit = new(int32(10))
		template := &sts.Spec.Template.Spec
		template.RestartPolicy = corev1.RestartPolicyAlways
		for i := range template.Containers {
			template.Containers[i].TerminationMessagePath = "/dev/termination-log"
			template.Containers[i].ImagePullPolicy = corev1.PullIfNotPresent
		}
	}
	if s.Webhook != nil {
		s.Webhook(object)
	}
	return object
}

// Apply implements client.Writer: it sets fields, and removes those that the same
// field owner applied before and no longer applies.
func (s *Server) Apply(_ context.Context, fields runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	var o client.ApplyOptions
	o.ApplyOptions(opts)
	wanted, onto := encoded(fields), metav1.PartialObjectMetadata{}
	decode(wanted, &onto)
	verb := "apply"
	if onto.UID == "" {
		verb = "create"
	}
	if err := s.ask(Request{Verb: verb, Of: NameOf(&onto), Body: string(wanted), Waits: !o.DisableReadYourWritesConsistency}); err != nil {
		return err
	}
	if onto.UID == "" {
		return s.createApplied(onto, wanted, fields, o.FieldManager)
	}
	found, err := s.exactly(&onto, onto.UID, onto.ResourceVersion)
	if err != nil {
		return err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(s.applied[owned(found, o.FieldManager)], pruned(wanted), encoded(found))
	if err != nil {
		return err
	}
	after := merged(found, patch, types.MergePatchType)
	replaceSelector(after, wanted)
	s.admit(after)
	if err := s.replace(found, after); err != nil {
		return err
	}
	s.applied[owned(after, o.FieldManager)] = pruned(wanted)
	answer(after, fields)
	return nil
}

// createApplied applies to a name that must be free: a resourceVersion without a UID
// conflicts with any object that exists.
func (s *Server) createApplied(onto metav1.PartialObjectMetadata, wanted []byte, fields runtime.ApplyConfiguration, owner string) error {
	if onto.ResourceVersion == "" {
		return fmt.Errorf("apply to %s %s without a resourceVersion: it may create or change", onto.Kind, onto.Name)
	}
	empty, err := scheme.New(onto.GroupVersionKind())
	if err != nil {
		return err
	}
	object := empty.(client.Object)
	decode(wanted, object)
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	object.SetResourceVersion("")
	if s.Objects[NameOf(object)] != nil {
		return conflict(object)
	}
	if err := s.create(object, owner); err != nil {
		return err
	}
	s.applied[owned(object, owner)] = pruned(wanted)
	answer(object, fields)
	return nil
}

// scheme has the kinds that an apply may create.
var scheme = func() *runtime.Scheme {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme} {
		if err := add(all); err != nil {
			panic(err)
		}
	}
	return all
}()

func answer(object client.Object, fields runtime.ApplyConfiguration) {
	if _, foreign := object.(*unstructured.Unstructured); !foreign {
		decode(encoded(map[string]any{"metadata": map[string]any{
			"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "generation": object.GetGeneration(),
		}}), fields)
	}
}

// replaceSelector replaces a Service's selector as a whole: it is an atomic map.
func replaceSelector(object client.Object, wanted []byte) {
	service, ok := object.(*corev1.Service)
	given := &corev1.Service{}
	if ok && json.Unmarshal(wanted, given) == nil && given.Spec.Selector != nil {
		service.Spec.Selector = given.Spec.Selector
	}
}

// Patch implements client.Writer for merge patches, also those that merge lists by their keys.
func (s *Server) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	var o client.PatchOptions
	o.ApplyOptions(opts)
	r := Request{Verb: "patch", Owner: o.FieldManager, Waits: !o.DisableReadYourWritesConsistency}
	found, after, err := s.patched(r, object, patch)
	if err != nil {
		return err
	}
	added := func(f string) bool { return !slices.Contains(found.GetFinalizers(), f) }
	if found.GetDeletionTimestamp() != nil && slices.ContainsFunc(after.GetFinalizers(), added) {
		return apierrors.NewForbidden(resourceOf(found), found.GetName(), errors.New("no new finalizers can be added if the object is being deleted"))
	}
	if s.Webhook != nil {
		s.Webhook(after)
	}
	if err := s.replace(found, after); err != nil {
		return err
	}
	return share(after, object)
}

// patched returns the object that a patch is for, if it has the UID and the resourceVersion of the patch, before and
// after it.
func (s *Server) patched(r Request, object client.Object, patch client.Patch) (found, after client.Object, err error) {
	data, err := patch.Data(object)
	if err != nil {
		return nil, nil, err
	}
	r.Of, r.Body = NameOf(object), string(data)
	if err := s.ask(r); err != nil {
		return nil, nil, err
	}
	var onto metav1.PartialObjectMetadata
	decode(data, &onto)
	if found, err = s.exactly(object, onto.UID, onto.ResourceVersion); err != nil {
		return nil, nil, err
	}
	return found, merged(found, data, patch.Type()), nil
}

// replace stores the changed object. A patch that changes nothing is no write.
func (s *Server) replace(found, after client.Object) error {
	if equality.Semantic.DeepEqual(found, after) {
		return nil
	}
	if was, ok := found.(*appsv1.StatefulSet); ok {
		is, _ := after.(*appsv1.StatefulSet)
		if !equality.Semantic.DeepEqual(was.Spec.VolumeClaimTemplates, is.Spec.VolumeClaimTemplates) {
			return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind(), was.Name, field.ErrorList{
				field.Forbidden(field.NewPath("spec"), "updates to volumeClaimTemplates are forbidden"),
			})
		}
		if !equality.Semantic.DeepEqual(was.Spec, is.Spec) {
			is.Generation++
		}
	}
	if was, ok := found.(*lwsv1.LeaderWorkerSet); ok {
		if is, _ := after.(*lwsv1.LeaderWorkerSet); !equality.Semantic.DeepEqual(was.Spec, is.Spec) {
			is.Generation++
		}
	}
	if was, ok := found.(*policyv1.PodDisruptionBudget); ok {
		if is, _ := after.(*policyv1.PodDisruptionBudget); !equality.Semantic.DeepEqual(was.Spec, is.Spec) {
			is.Generation++
		}
	}
	if after.GetDeletionTimestamp() != nil && len(found.GetFinalizers()) > 0 && ends(after) {
		s.Erase(after)
		return nil
	}
	s.Put(after)
	return nil
}

// Delete implements client.Writer, with preconditions.
func (s *Server) Delete(_ context.Context, object client.Object, opts ...client.DeleteOption) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	if err := s.ask(Request{Verb: "delete", Of: NameOf(object), Waits: !o.DisableReadYourWritesConsistency}); err != nil {
		return err
	}
	if o.GracePeriodSeconds != nil {
		panic(fmt.Sprintf("%s is deleted with a grace period of its own", NameOf(object)))
	}
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	found := s.Objects[NameOf(object)]
	switch {
	case found == nil:
		return apierrors.NewNotFound(resourceOf(object), object.GetName())
	case o.Preconditions.UID != nil && *o.Preconditions.UID != found.GetUID(),
		o.Preconditions.ResourceVersion != nil && *o.Preconditions.ResourceVersion != found.GetResourceVersion():
		return conflict(object)
	}
	how := metav1.DeletePropagationBackground
	if o.PropagationPolicy != nil {
		how = *o.PropagationPolicy
	}
	s.Remove(found, how)
	return nil
}

// Remove deletes an object as the API server does: pods that run on a node, and
// objects with finalizers, get a deletion timestamp only.
func (s *Server) Remove(object client.Object, how metav1.DeletionPropagation) {
	going, _ := object.DeepCopyObject().(client.Object)
	switch how {
	case metav1.DeletePropagationForeground:
		going.SetFinalizers(append(going.GetFinalizers(), metav1.FinalizerDeleteDependents))
	case metav1.DeletePropagationOrphan:
		going.SetFinalizers(append(going.GetFinalizers(), metav1.FinalizerOrphanDependents))
	}
	if ends(going) {
		s.Erase(object)
		return
	}
	if going.GetDeletionTimestamp() == nil {
		going.SetDeletionTimestamp(&metav1.Time{Time: s.Now})
	}
	s.Put(going)
}

// ends reports whether a deleted object is gone at once: it has no finalizers, and no
// kubelet runs it.
func ends(object client.Object) bool {
	pod, isPod := object.(*corev1.Pod)
	return len(object.GetFinalizers()) == 0 && (!isPod || pod.Spec.NodeName == "")
}

// Release removes a finalizer, and also the terminating object if that was the last.
func (s *Server) Release(object client.Object, finalizer string) {
	if !slices.Contains(object.GetFinalizers(), finalizer) {
		return
	}
	released, _ := object.DeepCopyObject().(client.Object)
	released.SetFinalizers(slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == finalizer }))
	if object.GetDeletionTimestamp() != nil && ends(released) {
		s.Erase(object)
		return
	}
	s.Put(released)
}

// Status implements client.StatusClient.
func (s *Server) Status() client.SubResourceWriter { return &statusWriter{server: s} }

type statusWriter struct {
	client.SubResourceWriter // panics in the verbs that no test uses
	server                   *Server
}

// Patch writes a status.
func (w *statusWriter) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	w.server.writes.Lock()
	defer w.server.writes.Unlock()
	found, after, err := w.server.patched(Request{Verb: "status", Waits: true}, object, patch)
	if err == nil { // a status patch writes nothing else
		kept := found.DeepCopyObject().(client.Object)
		reflect.ValueOf(kept).Elem().FieldByName("Status").Set(reflect.ValueOf(after).Elem().FieldByName("Status"))
		w.server.Put(kept)
	}
	return err
}

// exactly returns the object of a name if it has the UID and the resourceVersion. Empty
// ones are no precondition.
func (s *Server) exactly(named client.Object, uid types.UID, version string) (client.Object, error) {
	found := s.Objects[NameOf(named)]
	switch {
	case found == nil:
		return nil, apierrors.NewNotFound(resourceOf(named), named.GetName())
	case version != "" && version != found.GetResourceVersion():
		return nil, conflict(named)
	case uid != "" && uid != found.GetUID():
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: string(KindOf(named))}, named.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
		})
	}
	return found, nil
}

func conflict(object client.Object) error {
	return apierrors.NewConflict(resourceOf(object), object.GetName(), errors.New("the object has been modified"))
}

func resourceOf(object client.Object) schema.GroupResource {
	return schema.GroupResource{Resource: string(KindOf(object))}
}

func owned(object client.Object, owner string) string { return string(object.GetUID()) + "/" + owner }

// merged returns a copy of found with a patch applied. It panics for a type of patch that nothing sends.
func merged(found client.Object, patch []byte, as types.PatchType) client.Object {
	after, _ := reflect.New(reflect.TypeOf(found).Elem()).Interface().(client.Object)
	var document []byte
	var err error
	switch as {
	case types.MergePatchType:
		document, err = jsonpatch.MergePatch(encoded(found), patch)
	case types.StrategicMergePatchType:
		document, err = strategicpatch.StrategicMergePatch(encoded(found), patch, after)
	default:
		err = fmt.Errorf("no patch of type %q is known", as)
	}
	if err != nil {
		panic(err)
	}
	decode(document, after)
	after.GetObjectKind().SetGroupVersionKind(found.GetObjectKind().GroupVersionKind())
	return after
}

// encoded returns the JSON of a value. It panics if a test passes a value without one.
func encoded(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

func decode(data []byte, into any) {
	if err := json.Unmarshal(data, into); err != nil {
		panic(err)
	}
}

// pruned removes the fields that no field owner owns: nulls, the status, and the identity.
func pruned(document []byte) []byte {
	fields := map[string]any{}
	decode(document, &fields)
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		for _, identity := range []string{"uid", "resourceVersion", "generation", "creationTimestamp"} {
			delete(metadata, identity)
		}
	}
	withoutNulls(fields)
	return encoded(fields)
}

func withoutNulls(fields map[string]any) {
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	for _, value := range fields {
		if inner, ok := value.(map[string]any); ok {
			withoutNulls(inner)
		}
	}
}
