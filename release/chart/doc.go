// Package chart generates and packages the Helm chart.
//
// It knows values.yaml: the schema and the table of values are made from its comments, so that the
// three cannot differ. It refuses to know what a value does: that is in the templates.
package chart
