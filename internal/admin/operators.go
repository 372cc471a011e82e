package admin

import (
	"net/http"

	"carstate/internal/access"
)

func (s *Server) listOperators(*http.Request, nothing) (operatorList, error) {
	list := operatorList{Operators: []OperatorSummary{}}
	for _, o := range s.cfg.Operators.List() {
		list.Operators = append(list.Operators, operatorSummary(o))
	}
	return list, nil
}

func (s *Server) addOperator(r *http.Request, in operatorRequest) (OperatorKey, error) {
	o, key, err := s.deeds.AddOperator(r.Context(), caller(r), in.Name)
	if err != nil {
		return OperatorKey{}, err
	}
	return OperatorKey{o.Name, key}, nil
}

func (s *Server) rotateOperator(r *http.Request, _ nothing) (OperatorKey, error) {
	o, key, err := s.deeds.RotateOperator(r.Context(), caller(r), r.PathValue("name"))
	if err != nil {
		return OperatorKey{}, err
	}
	return OperatorKey{o.Name, key}, nil
}

func (s *Server) removeOperator(r *http.Request, _ nothing) (OperatorSummary, error) {
	o, err := s.deeds.RemoveOperator(r.Context(), caller(r), r.PathValue("name"))
	if err != nil {
		return OperatorSummary{}, err
	}
	return operatorSummary(o), nil
}

func (s *Server) rotateAdminKey(r *http.Request, _ nothing) (RotatedAdminKey, error) {
	if err := s.deeds.RotateAdminKey(r.Context(), caller(r)); err != nil {
		return RotatedAdminKey{}, err
	}
	return RotatedAdminKey{KeyFile(s.cfg.KeyDir)}, nil
}

func operatorSummary(o access.Operator) OperatorSummary {
	return OperatorSummary{Name: o.Name, CreatedAt: o.Created, RotatedAt: orNil(o.Rotated), RemovedAt: orNil(o.Removed)}
}
