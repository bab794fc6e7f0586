// Package report puts a survey into a form that people and programs can read: a
// status or a plan, as a value with stable field names and as text.
//
// It knows what each number means and how long a text may get. It is pure: it
// reads no cluster, no terminal and no clock beyond the moment of the survey.
package report
