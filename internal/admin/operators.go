package admin

import (
	"net/http"

	"carstate/internal/admin/wire"
	"carstate/internal/ops"
)

func (s *Server) listOperators(*http.Request, nothing) (wire.OperatorList, error) {
	return wire.OperatorList{Operators: s.ops.Operators()}, nil
}

func (s *Server) addOperator(r *http.Request, in wire.OperatorRequest) (wire.OperatorKey, error) {
	o, key, err := s.ops.AddOperator(r.Context(), caller(r), in.Name)
	return wire.OperatorKey{Name: o.Name, Key: key}, err
}

func (s *Server) rotateOperator(r *http.Request, _ nothing) (wire.OperatorKey, error) {
	o, key, err := s.ops.RotateOperator(r.Context(), caller(r), r.PathValue("name"))
	return wire.OperatorKey{Name: o.Name, Key: key}, err
}

func (s *Server) removeOperator(r *http.Request, _ nothing) (ops.OperatorSummary, error) {
	return s.ops.RemoveOperator(r.Context(), caller(r), r.PathValue("name"))
}

func (s *Server) rotateAdminKey(r *http.Request, _ nothing) (wire.RotatedAdminKey, error) {
	file, err := s.ops.RotateAdminKey(r.Context(), caller(r))
	return wire.RotatedAdminKey{File: file}, err
}
