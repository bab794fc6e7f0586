// Package standin is a fake of the reference implementation of the LeaderWorkerSet API,
// as far as the contract describes its writes.
//
// It knows the shape of each write, and how the reference implementation reads a set. It
// is no controller, and refuses to know Lockstep: Lockstep must take over the objects that
// it creates, and must hand back the objects that it reads.
package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// manager is the field manager of the leader StatefulSet. Creates and updates have the same
// field manager, because the user agent begins with it.
const manager = "lws"

// Other is the reference implementation.
type Other struct{ client client.Client }

// New returns an Other that writes to the cluster of config.
func New(config *rest.Config) (*Other, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = manager + "/v0.10.0 (linux/amd64) 0000000"
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := lwsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return &Other{client: c}, err
}

// Data returns the data of a revision of the set.
func Data(set *lwsv1.LeaderWorkerSet) []byte {
	set = set.DeepCopy()
	if set.Spec.NetworkConfig == nil {
		shared := lwsv1.SubdomainShared
		set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &shared}
	}
	var document struct {
		Spec map[string]map[string]any `json:"spec"`
	}
	encoded := must(json.Marshal(map[string]any{"spec": map[string]any{
		"leaderWorkerTemplate": set.Spec.LeaderWorkerTemplate, "networkConfig": set.Spec.NetworkConfig,
	}}))
	if err := json.Unmarshal(encoded, &document); err != nil {
		panic(err)
	}
	delete(document.Spec["leaderWorkerTemplate"], "maxGroupRestarts")
	for _, part := range document.Spec {
		part["$patch"] = "replace"
	}
	return must(json.Marshal(document))
}

// Key returns the hash of a revision's data.
func Key(data []byte) string {
	hash := fnv.New32()
	hash.Write(data)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}

// Record creates a revision with a key. The key is the hash of the data, unless a lost
// revision is created again.
func (o *Other) Record(ctx context.Context, set *lwsv1.LeaderWorkerSet, data []byte, key string, number int64) error {
	return o.client.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%.220s-%s-%d", set.Name, Key(data), number),
			Labels:          map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key},
			OwnerReferences: controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set),
		},
		Revision: number,
		Data:     runtime.RawExtension{Raw: data},
	})
}

// Change changes a StatefulSet before it is written, as some versions differ.
type Change func(*appsv1.StatefulSet)

// ApplyLeaders applies the leader StatefulSet: it creates or changes it.
func (o *Other) ApplyLeaders(
	ctx context.Context, set *lwsv1.LeaderWorkerSet, key string, partition, replicas int32, change Change,
) error {
	return o.apply(ctx, Leaders(set, key, partition, replicas, change))
}

func (o *Other) apply(ctx context.Context, leaders client.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(leaders)
	if err != nil {
		return err
	}
	delete(fields, "status")
	owned(fields)
	document := &unstructured.Unstructured{Object: fields}
	return o.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(document), client.FieldOwner(manager), client.ForceOwnership)
}

// PostLeaders creates the leader StatefulSet, as earlier versions did.
func (o *Other) PostLeaders(ctx context.Context, set *lwsv1.LeaderWorkerSet, key string, replicas int32, change Change) error {
	return o.client.Create(ctx, Leaders(set, key, 0, replicas, change))
}

// Serve creates the Service of all groups.
func (o *Other) Serve(ctx context.Context, set *lwsv1.LeaderWorkerSet) error {
	return o.client.Create(ctx, service(set, set.Name, map[string]string{lwsv1.SetNameLabelKey: set.Name},
		controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set)))
}

// ServeGroup creates the Service of one group.
func (o *Other) ServeGroup(ctx context.Context, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) error {
	return o.client.Create(ctx, service(set, leader.Name, map[string]string{
		lwsv1.SetNameLabelKey: set.Name, lwsv1.GroupIndexLabelKey: leader.Labels[lwsv1.GroupIndexLabelKey],
	}, controlled("v1", "Pod", leader)))
}

// MakeWorkers creates the StatefulSet of one group's workers. set is the live one with the
// template of the leader's revision; domain is the leader's exclusive topology domain, or empty.
// The change is made to the StatefulSet if it is not nil.
func (o *Other) MakeWorkers(ctx context.Context, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod, domain string, change Change) error {
	sts := Workers(set, leader, domain)
	if change != nil {
		change(sts)
	}
	return o.client.Create(ctx, sts)
}

// Stop ends a group that exhausted its budget, and keeps its pods.
func (o *Other) Stop(ctx context.Context, leader *corev1.Pod, workers ...*corev1.Pod) error {
	const finalizer = "leaderworkerset.sigs.k8s.io/group-restart-budget-cleanup"
	for _, pod := range append([]*corev1.Pod{leader}, workers...) {
		next := pod.DeepCopy()
		next.Finalizers = append(next.Finalizers, finalizer)
		if pod == leader {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, "leaderworkerset.sigs.k8s.io/group-restart-budget-exhausted", "true")
		}
		if err := o.client.Patch(ctx, next, client.MergeFrom(pod)); err != nil {
			return err
		}
	}
	return o.client.Delete(ctx, leader, client.PropagationPolicy(metav1.DeletePropagationForeground))
}

// Tell writes the status.
func (o *Other) Tell(ctx context.Context, set *lwsv1.LeaderWorkerSet, status lwsv1.LeaderWorkerSetStatus) error {
	set = set.DeepCopy()
	set.Status = status
	return o.client.Status().Update(ctx, set)
}

// controlled returns ownerReferences with owner as the controller.
func controlled(apiVersion, kind string, owner metav1.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes,
	}}
}

// owned removes empty fields that a typed object always encodes: an apply would own them.
func owned(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if empty, _ := field.(map[string]any); field == nil || (key == "status" || key == "resources") && len(empty) == 0 {
				delete(value, key)
				continue
			}
			owned(field)
		}
	case []any:
		for _, item := range value {
			owned(item)
		}
	}
}

// must returns encoded, and panics on an error: all values encoded here have a JSON form.
func must(encoded []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return encoded
}

// Judge finds the current revision by labels, as the reference implementation does, and returns
// its key. It returns an error where that would create another revision and restart pods.
func (o *Other) Judge(ctx context.Context, set *lwsv1.LeaderWorkerSet) (string, error) {
	var leaders client.Object = &appsv1.StatefulSet{}
	if set.Spec.GroupIdentity == lwsv1.HashGroupIdentity {
		leaders = &appsv1.Deployment{}
	}
	if err := o.client.Get(ctx, client.ObjectKeyFromObject(set), leaders); err != nil {
		return "", err
	}
	key := leaders.GetLabels()[lwsv1.RevisionKey]
	all, err := o.revisions(ctx, set)
	var current *appsv1.ControllerRevision
	for _, r := range all {
		if r.Labels[lwsv1.RevisionKey] == key && (current == nil || r.Revision > current.Revision) {
			current = &r
		}
	}
	if current == nil {
		return "", errors.Join(err, fmt.Errorf("set %s has no revision with key %q", set.Name, key))
	}
	if have, want := current.Data.Raw, Data(set); !bytes.Equal(have, want) && !bytes.Equal(again(set, have), want) {
		return "", fmt.Errorf("revision %s differs from set %s:\n%s\n%s", current.Name, set.Name, have, want)
	}
	return key, nil
}

// Revisions counts the revisions for each key.
func (o *Other) Revisions(ctx context.Context, set *lwsv1.LeaderWorkerSet) (map[string]int, error) {
	all, err := o.revisions(ctx, set)
	keys := map[string]int{}
	for _, r := range all {
		keys[r.Labels[lwsv1.RevisionKey]]++
	}
	return keys, err
}

// revisions finds revisions by the set's label, and skips those that another object controls.
func (o *Other) revisions(ctx context.Context, set *lwsv1.LeaderWorkerSet) ([]appsv1.ControllerRevision, error) {
	list := &appsv1.ControllerRevisionList{}
	err := o.client.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name})
	return slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool {
		owner := metav1.GetControllerOf(&r)
		return owner != nil && owner.UID != set.UID
	}), err
}

// again decodes and encodes data that other API types encoded.
func again(set *lwsv1.LeaderWorkerSet, data []byte) []byte {
	restored := set.DeepCopy()
	restored.Spec.LeaderWorkerTemplate, restored.Spec.NetworkConfig = lwsv1.LeaderWorkerTemplate{}, nil
	if json.Unmarshal(data, &lwsv1.LeaderWorkerSet{}) != nil || json.Unmarshal(data, restored) != nil {
		return nil
	}
	return Data(restored)
}

// groupReady is the readiness gate and condition of Hash leaders.
const groupReady = "leaderworkerset.sigs.k8s.io/group-ready"

// LeaderDeployment returns the Deployment of the leaders of a set with groupIdentity Hash, as 0.11 makes it.
func LeaderDeployment(set *lwsv1.LeaderWorkerSet, key string) *appsv1.Deployment {
	sts := Leaders(set, key, 0, *set.Spec.Replicas, nil)
	template := sts.Spec.Template
	template.Annotations["leaderworkerset.sigs.k8s.io/group-identity"] = "Hash"
	template.Spec.Subdomain = set.Name
	if *set.Spec.LeaderWorkerTemplate.Size > 1 {
		template.Spec.ReadinessGates = append(template.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: groupReady})
	}
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: sts.ObjectMeta,
		Spec: appsv1.DeploymentSpec{
			Replicas: set.Spec.Replicas, Selector: sts.Spec.Selector, Template: template,
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &rolling.MaxUnavailable, MaxSurge: &rolling.MaxSurge},
			},
		},
	}
}

// ApplyLeaderDeployment applies it.
func (o *Other) ApplyLeaderDeployment(ctx context.Context, set *lwsv1.LeaderWorkerSet, key string) error {
	return o.apply(ctx, LeaderDeployment(set, key))
}

// Lift lets a Hash leader be scheduled.
func (o *Other) Lift(ctx context.Context, leader *corev1.Pod) error {
	next := leader.DeepCopy()
	next.Spec.SchedulingGates = nil
	delete(next.Annotations, corev1.PodDeletionCost) // later versions set it with the gate
	return o.client.Patch(ctx, next, client.StrategicMergeFrom(leader))
}

// MakeHashGroup creates the worker StatefulSet of a Hash leader, under the name of the leader's pod, and its Service
// where it has one.
func (o *Other) MakeHashGroup(ctx context.Context, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) error {
	host := leader.Spec.Hostname
	if perReplica(set) {
		err := o.client.Create(ctx, service(set, host, map[string]string{
			lwsv1.SetNameLabelKey: set.Name, lwsv1.GroupIndexLabelKey: leader.Labels[lwsv1.GroupIndexLabelKey],
		}, controlled("v1", "Pod", leader)))
		if client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	if *set.Spec.LeaderWorkerTemplate.Size < 2 {
		return nil
	}
	sts := Workers(set, leader, "")
	AsOf011(sts)
	if perReplica(set) {
		sts.Spec.ServiceName = host
	}
	sts.Spec.Template.Annotations[lwsv1.LeaderAddressAnnotationKey] = host + "." + leader.Spec.Subdomain + "." + set.Namespace
	sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey] = strconv.Itoa(int(*set.Spec.LeaderWorkerTemplate.Size))
	return client.IgnoreAlreadyExists(o.client.Create(ctx, sts))
}

// SyncReadiness writes the condition of a leader whose workers are ready.
func (o *Other) SyncReadiness(ctx context.Context, leader *corev1.Pod) error {
	next := leader.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{
		Type: groupReady, Status: corev1.ConditionTrue, Reason: "WorkerStatefulSetReady", LastTransitionTime: metav1.Now(),
	})
	return o.client.Status().Patch(ctx, next, client.StrategicMergeFrom(leader))
}
