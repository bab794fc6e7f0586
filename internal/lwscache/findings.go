package lwscache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Found remembers what a look at a group found, for looks at its set, and tells
// whether that is news to this life of the set.
func (m *Memory) Found(finding *lws.Finding) bool {
	if finding == nil {
		return false
	}
	key := types.NamespacedName{Namespace: finding.Leader.Namespace, Name: finding.Leader.Name}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.findings[key]
	m.findings[key] = *finding
	return before.Set != finding.Set || before.Leader.UID != finding.Leader.UID || before.Started != finding.Started || (before.Failure == nil) != (finding.Failure == nil)
}

// Dismissed remembers that failures found of groups are nothing to their set.
func (m *Memory) Dismissed(leaders []identity.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, leader := range leaders {
		key := types.NamespacedName{Namespace: leader.Namespace, Name: leader.Name}
		if found, ok := m.findings[key]; ok && found.Leader.UID == leader.UID {
			found.Dismissed = true
			m.findings[key] = found
		}
	}
}

// foundOf returns what was found of the group under a leader's name in this life of its
// set, or zero. Of a set that was made again around its pods nobody hears what was found
// for the one before. Under None what was found before is forgiven, and forgotten.
func (m *Memory) foundOf(set *lwsv1.LeaderWorkerSet, leader types.NamespacedName) lws.Finding {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !lws.Recreates(set) {
		delete(m.findings, leader)
	}
	if found := m.findings[leader]; found.Set == set.UID {
		return found
	}
	return lws.Finding{}
}

// settled forgets what was found of a group once its set tells of it, or when
// another leader has come.
func (m *Memory) settled(leader types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.findings[leader]; ok && found.Leader.UID == uid {
		delete(m.findings, leader)
	}
}

// findings returns what was found of the groups of a set, by leader, and forgets
// what the set tells of already. That a leader failed holds for it also after it
// has left.
func (o *Observer) findings(set *lwsv1.LeaderWorkerSet, leaders identity.Claim[*corev1.Pod]) map[types.UID]lws.Finding {
	if !lws.Recreates(set) {
		return nil
	}
	present := map[string]types.UID{}
	for index := range int(lws.Replicas(set)) {
		present[identity.LeaderName(set.Name, index)] = ""
	}
	for _, pod := range slices.Concat(leaders.Members, leaders.Ghosts) {
		present[pod.Name] = pod.UID
	}
	found := map[types.UID]lws.Finding{}
	for name, leader := range present {
		key := types.NamespacedName{Namespace: set.Namespace, Name: name}
		f := o.memory.foundOf(set, key)
		switch {
		case f.Set != set.UID || f.Failure == nil && f.Leader.UID != leader:
		case lws.Tells(set, f):
			o.memory.settled(key, f.Leader.UID)
		default:
			found[f.Leader.UID] = f
		}
	}
	return found
}

// over is a leader that ended by itself, and when it was seen. Who tried to look at its
// group leads, and nobody else answers it.
type over struct {
	leader *corev1.Pod
	seen   time.Time
	tried  bool
}

// overFor is for how long a leader that ended is remembered: longer than a lease takes to
// change hands. Who leads looks at once. Who stands by hears of all that end, and never
// looks: what it heard long ago, another has answered.
const overFor = time.Minute

// Over remembers a leader that ended by itself until its group is looked at: its
// StatefulSet may clear it away before.
func (m *Memory) Over(leader *corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.over, func(_ types.NamespacedName, was over) bool { return was.past(now) })
	m.over[client.ObjectKeyFromObject(leader)] = over{leader: leader, seen: now}
}

func (o over) past(now time.Time) bool { return !o.tried && now.Sub(o.seen) > overFor }

// takeOver returns the leader of that name that ended, and forgets it.
func (m *Memory) takeOver(leader types.NamespacedName, now time.Time) over {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := m.over[leader]
	delete(m.over, leader)
	if ended.past(now) {
		return over{}
	}
	return ended
}

// giveBack remembers a leader that ended for the next look: one that came to nothing has
// told nobody of it.
func (m *Memory) giveBack(leader types.NamespacedName, ended over) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, later := m.over[leader]; !later && ended.leader != nil {
		ended.tried = true
		m.over[leader] = ended
	}
}

// departed returns a leader that ended by itself as it was before it was deleted, if
// it was since, else nil: one on its way out does not tell which came first.
func departed(over *corev1.Pod, w *lws.GroupSnapshot) *corev1.Pod {
	if over == nil || w.LeaderSet == nil || !metav1.IsControlledBy(over, w.LeaderSet) || w.Leader != nil && w.Leader.UID == over.UID {
		return nil
	}
	return over
}

// StatusGiven remembers the status that was last written for a set: a server whose
// definition is from before drops what it does not know, without a word.
func (m *Memory) StatusGiven(set client.Object, status lwsv1.LeaderWorkerSetStatus) {
	m.note(set, func(w *writes) { w.status = &status })
}

// remembering is a set with what its server did not keep of the status last
// written, and tells whether there was any such thing. A look sees at least our own
// last write.
func (m *Memory) remembering(set *lwsv1.LeaderWorkerSet) (*lwsv1.LeaderWorkerSet, bool) {
	given := m.writesOf(set).status
	if given == nil || given.RestartsSince == nil || set.Status.RestartsSince != nil {
		return set, false
	}
	whole := *set
	whole.Status.Started, whole.Status.Restarts, whole.Status.RestartsSince = given.Started, given.Restarts, given.RestartsSince
	return &whole, true
}

// verify looks at a group in the API server itself when the cache shows that
// something of it is missing: a failure is written down for good.
func (o *Observer) verify(ctx context.Context, j *judge, w *lws.GroupSnapshot) error {
	if !lws.Doubtful(*w) {
		return nil
	}
	leader := client.ObjectKeyFromObject(w.Leader)
	var list corev1.PodList
	if err := o.live.List(ctx, &list, client.InNamespace(leader.Namespace), groupLabels(w)); err != nil {
		return fmt.Errorf("look for the pods of %q: %w", leader, err)
	}
	var workers []*appsv1.StatefulSet
	sts := &appsv1.StatefulSet{}
	switch err := o.live.Get(ctx, leader, sts); {
	case err == nil:
		workers = append(workers, sts)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for the workers of %q: %w", leader, err)
	}
	var led *corev1.Pod
	var pods []*corev1.Pod
	for _, pod := range pointers(list.Items) {
		parent, _ := identity.ParentAndOrdinal(pod.Name)
		switch {
		case pod.UID == w.Leader.UID && pod.DeletionTimestamp == nil:
			led = pod
		case parent == w.LeaderName:
			pods = append(pods, pod)
		}
	}
	var err error
	if led == nil && w.Leader.Labels[lwsv1.GroupIndexLabelKey] == "" { // nobody finds it by that
		if led, err = o.stillLeads(ctx, w.Leader); err != nil {
			return fmt.Errorf("look for leader %q: %w", leader, err)
		}
	}
	w.Last = o.memory.lastOf(leader, w.Now)
	if w.Leader = led; led != nil { // one that has gone meanwhile is past failing
		if pods, err = o.withEstranged(ctx, w, pods); err != nil {
			return err
		}
	}
	return o.claimGroup(ctx, j, w, workers, pods)
}

// claimGroup judges what was read of a group anew.
func (o *Observer) claimGroup(ctx context.Context, j *judge, w *lws.GroupSnapshot, workers []*appsv1.StatefulSet, pods []*corev1.Pod) error {
	claimant := leaderUID(&w.Group)
	if err := learn(ctx, j, workers, claimant); err != nil {
		return err
	}
	w.Workers = claim(j.lives, workers, claimant, func(sts *appsv1.StatefulSet) bool { return lws.IsWorkerStatefulSet(sts, w.Set, w.Group) })
	if sts := w.Workers.Member(); sts != nil {
		claimant = append(claimant, sts.UID)
	}
	if err := learn(ctx, j, pods, claimant); err != nil {
		return err
	}
	w.Pods = claim(j.lives, pods, claimant, func(pod *corev1.Pod) bool { return lws.IsWorker(pod, w.Set.Name) })
	return nil
}
