package redact

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestText(t *testing.T) {
	r := New()
	r.Learn([]client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "llama-0"}}})
	for _, stays := range []string{
		"0/3 nodes are available: 3 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint.",
		"Successfully assigned prod/llama-0 to node", "FailedCreate: exceeded quota, since 2026-11-26T04:36:50Z",
		"exit code 137, after 2m30s", "spec.template.spec.containers[0].imagePullPolicy", "127.0.0.1:9443", "[::1]:9443", "[::]:8081", "UpdateInProgress: NotInUse, NoHold", "",
	} {
		expect.Equalf(t, stays, r.Text(stays), "became")
	}
	for text, goes := range map[string]string{
		"password hunter2":              "hunter2",
		"token=ghp16C7e42F292c69":       "ghp16C7e42F292c69",
		"dial tcp 10.11.12.13:80":       "10.11.12.13",
		"dial tcp [2001:db8::8888]:443": "8888", "from fe80:0:0:0:a1:b2:c3:d4 to us": "a1:b2",
		"link 02:42:ac:11:00:02 is up": "ac:11",
		"pin 1234567":                  "1234567",
		"pod opulent-0 failed":         "opulent",
		"of MyDbPwIsOk":                "MyDbPwIsOk",
		"the password is пароль":       "пароль",
		"the password is pässwörd":     "ssw",
	} {
		got := r.Text(text)
		expect.That(t, !strings.Contains(got, goes) && got == r.Text(text), "%q became %q", text, got)
	}
	expect.That(t, r.Text("hunter2") != New().Text("hunter2"), "two bundles have the same tokens")
}

// Every word of these credentials may stay elsewhere.
func TestCredentialsInURLsAreRedacted(t *testing.T) {
	r := New()
	r.Learn([]client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "llama-0"}}})
	for url, secret := range map[string]string{
		"https://prod:1234@host/pod":          "prod:1234",
		"https://1234@host/pod":               "1234",
		"s3://prod:12/34@host":                "12/34",
		"postgres+tcp://prod:p@1234@host:80":  "1234",
		"//prod:1234@host":                    "1234",
		"https://host/pod?token=1234":         "1234",
		"https://host?1234":                   "1234",
		"https://host/pod?x=1&sig=1234#pod":   "1234",
		"https://host/pod#access_token=1234":  "1234",
		"git@host, then ssh://git:1234@host:": "1234",
	} {
		for where, got := range map[string]string{
			"a message": r.Text("failed to pull \"" + url + "\": not found"),
			"a name":    r.Object(&corev1.Pod{Spec: corev1.PodSpec{NodeName: url}}).Object["spec"].(map[string]any)["nodeName"].(string),
			"an image":  r.image(url),
		} {
			expect.That(t, !strings.Contains(got, secret) && strings.Contains(got, "redacted-"),
				"%s in %s became %q", url, where, got)
		}
	}
}

func TestImagesStayIfTheyAreReferences(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	r := New()
	for _, stays := range []string{
		"", "nginx", "nginx:1.27", "ns/a_b.c--d:latest", "registry.example.com:5000/team/app:v1.2-rc1_x" + digest, "localhost/app",
		"[::1]:5000/app", "app" + digest, "sha256:" + strings.Repeat("ab", 32), "docker-pullable://nginx" + digest,
	} {
		expect.Equalf(t, stays, r.image(stays), "became")
	}
	for _, goes := range []string{
		"https://registry/app", "user:password@registry/app", "registry/app?token=1234", "registry/App", "app:", "app@1234", "app: password",
		" app", "app\n", "a//b", "/app", "http://docker-pullable://a", "registry:pw/app", "app:" + strings.Repeat("x", 129), "пароль",
	} {
		got := r.image(goes)
		expect.That(t, strings.HasPrefix(got, "redacted-"), "%q became %q", goes, got)
	}
}

// Any client may write the host of an event.
func TestTheSourceOfAnEventIsRedacted(t *testing.T) {
	r := New()
	event := &corev1.Event{Source: corev1.EventSource{Component: "kubelet", Host: "node-1"}, ReportingInstance: "hunter2"}
	source, _ := r.Object(event).Object["source"].(map[string]any)
	expect.That(t, strings.HasPrefix(source["host"].(string), "redacted-") && source["component"] == "kubelet",
		"got %v", source)
	instance := r.Object(event).Object["reportingInstance"].(string)
	expect.That(t, !strings.Contains(instance, "hunter2"), "got %s", instance)
}

// setWith is a set whose pods have a value in their environment, and stored its revision.
func setWith(t *testing.T, value string) (*lwsv1.LeaderWorkerSet, *appsv1.ControllerRevision) {
	t.Helper()
	set := fakeapi.Set("llama", 2, 2)
	c := &set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "TOKEN", Value: value}}
	data := expect.Value(revision.Data(set))(t)
	key := revision.Key(data)
	return set, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: revision.Name(set.Name, key, 1), Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key},
		},
		Data: runtime.RawExtension{Raw: data},
	}
}

// redacted decodes a redacted object as an API server does.
func redacted(t *testing.T, r *Redactor, object, into client.Object) {
	t.Helper()
	expect.OK(t, json.Unmarshal([]byte(encoded(t, r.Object(object))), into))
}

// A decision compares a set with its revisions, and pods with both. Redaction changes none of the answers.
func TestHashesAreMadeAgain(t *testing.T) {
	set, stored := setWith(t, "one")
	_, older := setWith(t, "two")
	key := stored.Labels[lwsv1.RevisionKey]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "llama-0", Labels: map[string]string{
		lwsv1.RevisionKey: key, appsv1.ControllerRevisionHashLabelKey: "llama-5c5c8b4544",
	}}}
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "llama"}, Status: appsv1.StatefulSetStatus{UpdateRevision: "llama-5c5c8b4544"}}
	r := New()
	r.Learn([]client.Object{set, stored, older, pod, sts})
	redactedSet, now, before := &lwsv1.LeaderWorkerSet{}, &appsv1.ControllerRevision{}, &appsv1.ControllerRevision{}
	redacted(t, r, set, redactedSet)
	redacted(t, r, stored, now)
	redacted(t, r, older, before)
	redacted(t, r, sts, sts)
	labels := r.Object(pod).GetLabels()
	live := expect.Value(revision.Data(redactedSet))(t)
	for what, holds := range map[string]bool{
		"the revision is genuine":                  revision.Genuine(now, "llama"),
		"the older revision is genuine":            revision.Genuine(before, "llama"),
		"the set is at its revision":               revision.Same(redactedSet, now.Data.Raw, live),
		"the set is not at the older one":          !revision.Same(redactedSet, before.Data.Raw, live),
		"the pod is at the revision":               labels[lwsv1.RevisionKey] == now.Labels[lwsv1.RevisionKey],
		"the name of the revision has its key":     now.Name == revision.Name("llama", now.Labels[lwsv1.RevisionKey], 1),
		"the old key is gone":                      now.Labels[lwsv1.RevisionKey] != key,
		"the hash of Kubernetes is replaced":       labels[appsv1.ControllerRevisionHashLabelKey] != "llama-5c5c8b4544",
		"and is so everywhere":                     labels[appsv1.ControllerRevisionHashLabelKey] == sts.Status.UpdateRevision,
		"a message names the revision by its name": r.Text("revision "+key) == "revision "+now.Labels[lwsv1.RevisionKey],
	} {
		expect.That(t, holds, "it does not hold that %s", what)
	}
}

// A decision about a DisaggregatedSet compares its roles with the revisions of its children and records, which are in their
// names too. Redaction changes none of the answers.
func TestRevisionsOfRolesAreMadeAgain(t *testing.T) {
	newSet := func(value string) *dsv1.DisaggregatedSet {
		set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Name: "chat", UID: "uid-of-chat"}}
		for _, name := range []string{"prefill", "decode"} {
			role := dsv1.DisaggregatedRole{Name: name, Spec: fakeapi.Set("x", 2, 2).Spec}
			role.Metadata.Annotations = map[string]string{"note": value}
			c := &role.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0]
			c.Env, c.Args = []corev1.EnvVar{{Name: "TOKEN", Value: value}}, []string{"--token=" + value}
			set.Spec.Roles = append(set.Spec.Roles, role)
		}
		set.Spec.PlacementPolicy = &dsv1.PlacementPolicy{Type: dsv1.PlacementExclusiveSlice, Topology: "example.com/rack"}
		return set
	}
	set, older := newSet("hunter2"), newSet("hunter1")
	key, keyOfOlder := expect.Value(disaggregated.RevisionOf(set.Spec.Roles))(t), expect.Value(disaggregated.RevisionOf(older.Spec.Roles))(t)
	stored, storedOlder := disaggregated.Record(set, key, 2), disaggregated.Record(older, keyOfOlder, 1)
	child := disaggregated.Child(set, &set.Spec.Roles[0], disaggregated.Place{Revision: key, Role: "prefill"}, 1, 2)
	stray := disaggregated.Child(set, &set.Spec.Roles[0], disaggregated.Place{Revision: "deadbeef", Role: "prefill"}, 1, 2)
	scaler := disaggregated.Scaler(set, "prefill", 2)
	scaler.Status.Selector = disaggregated.Selector("chat", "prefill")
	data := expect.Value(revision.Data(child))(t)
	ofChild := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Name: revision.Name(child.Name, revision.Key(data), 1), Labels: map[string]string{lwsv1.SetNameLabelKey: child.Name, lwsv1.RevisionKey: revision.Key(data)},
	}, Data: runtime.RawExtension{Raw: data}}
	all := []client.Object{ofChild, child, stray, stored, storedOlder, set, scaler}
	r := New()
	r.Learn(all)
	for _, object := range all {
		text := encoded(t, r.Object(object))
		for _, secret := range []string{"hunter", key, keyOfOlder, "deadbeef"} {
			expect.That(t, !strings.Contains(text, secret), "%T has %s", object, secret)
		}
	}
	nowSet, nowChild, nowStored, nowOlder, nowOfChild, nowScaler := &dsv1.DisaggregatedSet{}, &lwsv1.LeaderWorkerSet{}, &appsv1.ControllerRevision{}, &appsv1.ControllerRevision{}, &appsv1.ControllerRevision{}, &dsv1.DisaggregatedSetRoleScaler{}
	for from, into := range map[client.Object]client.Object{
		set: nowSet, child: nowChild, stored: nowStored, storedOlder: nowOlder, ofChild: nowOfChild, scaler: nowScaler,
	} {
		redacted(t, r, from, into)
	}
	now := expect.Value(disaggregated.RevisionOf(nowSet.Spec.Roles))(t)
	rolesOfOlder := expect.Value(disaggregated.RolesOf(nowOlder))(t)
	expect.Equalf(t, disaggregated.Labels("chat", disaggregated.Place{Revision: now, Role: "prefill"})[dsv1.RevisionLabelKey], nowChild.Labels[dsv1.RevisionLabelKey], "the child is at the revision")
	expect.Equalf(t, disaggregated.ChildName("chat", disaggregated.PlaceOf(nowChild)), nowChild.Name, "the child has the name of its place")
	expect.Equalf(t, disaggregated.Record(nowSet, now, 2).Name, nowStored.Name, "the record is that of the set")
	expect.Equalf(t, string(disaggregated.Record(nowSet, now, 2).Data.Raw), string(nowStored.Data.Raw), "the record has the roles of the set")
	expect.Equalf(t, expect.Value(disaggregated.RevisionOf(rolesOfOlder))(t), nowOlder.Labels[dsv1.RevisionLabelKey], "the older record is at its revision")
	expect.That(t, nowOlder.Labels[dsv1.RevisionLabelKey] != now, "both revisions are the same")
	expect.That(t, revision.Genuine(nowOfChild, nowChild.Name), "the revision of the child is not genuine")
	expect.Equal(t, int32(2), disaggregated.Intended(nowChild))
	expect.Equal(t, scaler.Status.Selector, nowScaler.Status.Selector)
	expect.Equal(t, "example.com/rack", nowSet.Spec.PlacementPolicy.Topology)
}

// messages are the packages whose texts are seen in conditions, events, logs, status, plan and why.
var messages = []string{
	"action", "apply", "backoff", "cli/consequence", "cli/disaggregated", "cli/fleet", "cli/group", "cli/page", "cli/pvc", "cli/render", "condition", "controller",
	"../api/disaggregatedset", "disaggregated", "gang", "identity", "lws", "lwscache", "operator", "pvc", "pvccache", "report",
}

// Every word of our own messages and of the names of fields is in the list: a bundle without them would say little.
func TestWordsOfMessagesAndFieldsStay(t *testing.T) {
	missing, found := map[string]bool{}, 0
	for _, dir := range messages {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(dir)), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, text := range literals(t, path) {
				for _, word := range word.FindAllString(text, -1) {
					found++
					if len(word) > 2 && strings.Trim(word, "0123456789") == word && !isVocabulary(word) {
						missing[word] = true
					}
				}
			}
			return nil
		})
		expect.OK(t, err)
	}
	expect.Must(t, found >= 1000, "only %d words were found", found)
	fields, seen := map[string]bool{}, map[reflect.Type]bool{}
	fieldNames(reflect.TypeFor[v1alpha1.Configuration](), seen, fields)
	for _, kind := range kinds() {
		fieldNames(reflect.TypeOf(kind), seen, fields)
	}
	for field := range fields {
		if strings.ContainsAny(field, "0123456789") && !isVocabulary(field) {
			missing[field] = true
		}
		for _, part := range part.FindAllString(field, -1) {
			if strings.Trim(part, "0123456789") != "" && !isVocabulary(part) {
				missing[strings.ToLower(part)] = true
			}
		}
	}
	words := slices.Sorted(maps.Keys(missing))
	switch {
	case len(missing) == 0:
	case *update:
		addWords(t, words)
	default:
		t.Errorf("words.txt lacks %s; run this test with -update", strings.Join(words, " "))
	}
}

// fieldNames adds the names of all fields of a type.
func fieldNames(of reflect.Type, seen map[reflect.Type]bool, names map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldNames(of.Elem(), seen, names)
	case reflect.Struct:
		if seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			names[jsonName(of.Field(i))] = true
			fieldNames(of.Field(i).Type, seen, names)
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

var update = flag.Bool("update", false, "add the words of our messages to words.txt")

func addWords(t *testing.T, more []string) {
	all := append(strings.Fields(wordList), more...)
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	var text, line strings.Builder
	for _, word := range slices.CompactFunc(all, strings.EqualFold) {
		if line.Len() > 0 && line.Len()+1+len(word) > 120 {
			text.WriteString(line.String() + "\n")
			line.Reset()
		}
		if line.Len() > 0 {
			line.WriteString(" ")
		}
		line.WriteString(word)
	}
	expect.OK(t, os.WriteFile("words.txt", []byte(text.String()+line.String()+"\n"), 0o644))
}

// literals returns the strings of a file, without its imports and tags.
func literals(t *testing.T, path string) (texts []string) {
	file := expect.Value(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution))(t)
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			node.Tag = nil
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}
