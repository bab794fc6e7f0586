// Package check is kubectl lockstep check: it finds out whether an installation is well, and before
// that whether one would go well.
//
// It knows what install would write, and compares it with what is there. It writes nothing: a set is
// created as a dry run, to see that the webhooks answer. What the user may not read is a warning that
// names the missing right, and never taken for absent.
package check

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/diff"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/terminal"
)

// Options say where and when to check.
type Options struct {
	// Client reads live.
	Client    client.Client
	Discovery discovery.DiscoveryInterface
	// TestNamespace is where a set is created as a dry run.
	TestNamespace string
	// Version is that of this program.
	Version string
	Now     time.Time
}

// check is a row of the table: what is read, and the verdict on it. Its name is its heading on the page.
type check struct {
	name  string
	reads []read
	judge func(*site, *findings)
}

const helpPage = "docs/how-to/check-an-installation.md"

// Table is a list of checks. The first reads what the others expect.
type Table []check

// Installed are the checks of an installation.
var Installed = Table{
	{"configuration", []read{expect(install.Expect)}, configuration},
	{"kubernetes", []read{serverVersion}, kubernetes},
	{"features", []read{maxUnavailable}, features},
	compare("definition", Failure, "definitions of this version", map[string]rule{crd: fields}, setLists...),
	compare("webhooks", Failure, "webhook configurations as install writes them, with a CA bundle",
		map[string]rule{mutatingKind.Kind: webhook, validatingKind.Kind: webhook}, endpointsOfWebhooks),
	{"admission", []read{dryRun}, admission},
	compare("certificate", Failure, "webhook configurations that trust an authority for 30 days and more",
		map[string]rule{"Secret": certificate, mutatingKind.Kind: certificate, validatingKind.Kind: certificate}),
	compare("policies", Failure, "policies and bindings that exist", map[string]rule{
		operator.ValidatingPolicy: policy, operator.ValidatingPolicy + "Binding": policy,
		operator.MutatingPolicy: policy, operator.MutatingPolicy + "Binding": policy,
	}),
	compare("roles", Failure, "roles and bindings with their rights and subjects", map[string]rule{
		"ClusterRole": role, "ClusterRoleBinding": unlike(Failure), "Role": role, "RoleBinding": unlike(Failure),
	}),
	{"leader", []read{operatorLease}, leader},
	{"version", []read{operatorLease}, operatorVersion},
	{"leftovers", others, leftovers},
}

// Before are the checks whether an installation would go well: into a cluster that has nothing of it.
var Before = Table{
	{"kubernetes", []read{expect(install.Plan), serverVersion}, kubernetes},
	{"features", []read{maxUnavailable}, features},
	compare("definition", OK, "definitions that lose no field by install", map[string]rule{crd: replacement}, setLists...),
	{"rights", []read{rightsOfInstall}, rights},
	{"leftovers", others, leftovers},
}

// Report is what "check -o json" prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	// Failures counts the lines with that result.
	Failures int    `json:"failures"`
	Lines    []Line `json:"lines"`
}

// Report checks row by row.
func (t Table) Report(ctx context.Context, o Options) *Report {
	r := &Report{TypeMeta: page.Kind("Check"), Lines: t.Run(ctx, o)}
	for _, l := range r.Lines {
		if l.Result == Failure {
			r.Failures++
		}
	}
	return r
}

// Write names the help for what is not well.
func (r *Report) Write(p *page.Page) {
	var rows []page.Row
	var help []string
	for _, l := range r.Lines {
		rows = append(rows, page.Row{l.Result, l.Check, l.Message})
		if l.Result != OK && !slices.Contains(help, l.Help) {
			help = append(help, l.Help)
		}
	}
	p.Table(page.Row{"RESULT", "CHECK", "FOUND"}, rows)
	p.Section("what to do:", help...)
}

// Run checks row by row.
func (t Table) Run(ctx context.Context, o Options) (lines []Line) {
	r := &reader{Options: o, site: &site{version: o.Version, testNamespace: o.TestNamespace, now: o.Now}}
	for _, c := range t {
		for _, line := range c.find(ctx, r).lines {
			line.Check, line.Help = c.name, helpPage+"#"+c.name
			lines = append(lines, line)
		}
		if r.Objects == nil { // nothing can be compared
			break
		}
	}
	return lines
}

// find reads, and judges what was read, if anything was.
func (c check) find(ctx context.Context, r *reader) (f findings) {
	r.live, r.found, r.unread = map[*object]*object{}, map[string][]object{}, nil
	for _, read := range c.reads {
		if err := read(ctx, r); err != nil && !r.note(err) {
			f.fail("%v", err)
			return f
		}
	}
	if len(r.unread) == 0 || len(r.live)+len(r.found) > 0 {
		c.judge(r.site, &f)
	}
	if len(r.unread) > 0 {
		slices.Sort(r.unread)
		f.warn("not all was checked: you may not %s", few(slices.Compact(r.unread)))
	}
	if len(f.lines) == 0 {
		f.ok("%s", f.well)
	}
	return f
}

// Result says how bad a finding is.
type Result string

// The results, by rising severity.
const (
	OK      Result = "ok"
	Warning Result = "warning"
	Failure Result = "failure"
)

// Line is one finding.
type Line struct {
	Check   string `json:"check"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Help is the page and the heading of the documentation about the check.
	Help string `json:"help"`
}

// findings are the lines of one check.
type findings struct {
	lines []Line
	// well is the line if there is no other.
	well string
}

// few joins the first names, and counts the others.
func few(names []string) string { return terminal.Few(names, 5) }

// add adds a line once.
func (f *findings) add(result Result, format string, args ...any) {
	if line := (Line{Result: result, Message: fmt.Sprintf(format, args...)}); !slices.Contains(f.lines, line) {
		f.lines = append(f.lines, line)
	}
}

func (f *findings) ok(format string, args ...any)   { f.add(OK, format, args...) }
func (f *findings) warn(format string, args ...any) { f.add(Warning, format, args...) }
func (f *findings) fail(format string, args ...any) { f.add(Failure, format, args...) }

// otherwise sets what is said if nothing is found, and everything could be read.
func (f *findings) otherwise(format string, args ...any) { f.well = fmt.Sprintf(format, args...) }

type object = unstructured.Unstructured

// site has what a cluster has and what install would write there. Verdicts know nothing else.
type site struct {
	install.Expected
	// version is the version of this program. Dry runs create objects in testNamespace.
	version, testNamespace string
	now                    time.Time
	// served is the version of the API server, and lacks the features that it does not serve.
	served *version.Version
	lacks  []string
	// refusal is the answer to a dry run of a set, and nil if it was admitted.
	refusal error
	// denied are the rights of install that the user lacks.
	denied []string
	// live has, for each expected object that could be read, the one in the cluster, or nil.
	live map[*object]*object
	// found has the objects of each other kind that could be read.
	found map[string][]object
}

// reader reads a cluster into a site.
type reader struct {
	Options
	*site
	// unread are the rights that the user lacks for the check at hand.
	unread []string
}

// read is one thing that a check needs. An error ends the check, unless it is the lack of a right.
type read func(context.Context, *reader) error

var deniedRight = regexp.MustCompile(`cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: (in the namespace "[^"]+"))?`)

// note reports whether an error is the lack of a right, and keeps the right by the API server's message.
func (r *reader) note(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	text := fmt.Sprintf("read this: %v", err)
	if denied := deniedRight.FindStringSubmatch(err.Error()); denied != nil {
		text = right(denied[1], denied[2], denied[3], denied[4])
	}
	r.unread = append(r.unread, text)
	return true
}

// objects reads objects that may not exist.
func objects(which func(*site) []*object) read {
	return func(ctx context.Context, r *reader) error {
		for _, want := range which(r.site) {
			live, err := install.Live(ctx, r.Client, want)
			if err != nil && !r.note(err) {
				return err
			}
			if err == nil {
				r.live[want] = live
			}
			if live != nil {
				r.found[live.GetKind()] = append(r.found[live.GetKind()], *live)
			}
		}
		return nil
	}
}

// one reads an object of the operator's namespace.
func one(apiVersion, kind string, name func(*site) string) read {
	return objects(func(s *site) []*object { return []*object{install.Bare(apiVersion, kind, s.Namespace, name(s))} })
}

// list reads the objects of a kind that may not be served.
func list(kind schema.GroupVersionKind, which ...client.ListOption) read {
	return func(ctx context.Context, r *reader) error {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(kind)
		err := r.Client.List(ctx, all, which...)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return err
		}
		r.found[kind.Kind] = all.Items
		return nil
	}
}

// as returns an object as its Go type.
func as[T any](f *findings, u *object) (typed T) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed); err != nil {
		f.fail("%s: %v", title(u), err)
	}
	return typed
}

// found returns the objects of a kind that were read.
func found[T any](s *site, f *findings, kind string) (all []T) {
	for _, u := range s.found[kind] {
		all = append(all, as[T](f, &u))
	}
	return all
}

// rule judges an object in the cluster by the one that install would write.
type rule func(s *site, f *findings, want, live *object)

// compare is a check of the objects of some kinds. missing is the result if one does not exist, and well are all of
// them if nothing is found.
func compare(name string, missing Result, well string, rules map[string]rule, more ...read) check {
	wanted := func(s *site) []*object {
		return slices.DeleteFunc(slices.Clone(s.Objects), func(u *object) bool { return rules[u.GetKind()] == nil })
	}
	return check{name, append([]read{objects(wanted)}, more...), func(s *site, f *findings) {
		all, absent := wanted(s), []string(nil)
		f.otherwise("%s: %d of %[2]d", well, len(all))
		for _, want := range all {
			live, isRead := s.live[want]
			switch {
			case live != nil:
				rules[want.GetKind()](s, f, want, live)
			case isRead:
				absent = append(absent, title(want))
			}
		}
		if len(absent) > 0 {
			f.add(missing, "%d of %d do not exist: %s; run: %s", len(absent), len(all), few(absent), s.Command)
		}
	}}
}

// unlike is the rule that objects are as install writes them, but for their metadata.
func unlike(result Result) rule {
	return func(s *site, f *findings, want, live *object) {
		wanted := maps.Clone(want.Object)
		delete(wanted, "metadata")
		if path := diff.Lacking(wanted, live.Object); path != "" {
			f.add(result, "%s differs at %s from what install writes; to write it again: %s", title(want), path, s.Command)
		}
	}
}

// title names an object as kubectl does.
func title(u *object) string { return strings.ToLower(u.GetKind()) + "/" + u.GetName() }
