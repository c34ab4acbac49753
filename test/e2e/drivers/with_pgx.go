// with_pgx.go: the driver program for pgx; doc/drivers/pgx.md shows parts of it.
// The commands are those of protocol.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// doc: connect
func connect(ctx context.Context, conninfo string, pooled bool) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(conninfo)
	if err != nil {
		return nil, err
	}
	if pooled { // PgBouncer in transaction mode, before 1.21: no named statements
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return pgx.ConnectConfig(ctx, config)
}

// doc: end

// doc: claim
type Verdict struct {
	Outcome    string
	Generation int64
	Attempt    *int32
	LeaseUntil *time.Time
	Params     map[string]any
	Differs    []string
}

// Outside a transaction of yours, it has committed when the answer is here.
func claim(ctx context.Context, conn *pgx.Conn, key string, params any, occurredAt *time.Time,
	lease *time.Duration) (v Verdict, err error) {
	err = conn.QueryRow(ctx, `SELECT outcome, generation, attempt, lease_until, params, differs
		FROM idem_claim($1, $2, occurred_at => $3, lease => $4)`, key, params, occurredAt, lease).
		Scan(&v.Outcome, &v.Generation, &v.Attempt, &v.LeaseUntil, &v.Params, &v.Differs)
	return v, err
}

// doc: end

// doc: complete
func complete(ctx context.Context, conn *pgx.Conn, key string, generation *int64, result any,
	reference string, amount int64) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT idem_complete($1, $2, $3, $4)",
			key, generation, result, reference)
		if err != nil {
			return err
		}
		// the answer to COMMIT may be lost, and all of this be said again
		_, err = tx.Exec(ctx, `INSERT INTO refund (key, amount, reference) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, key, amount, reference)
		return err
	})
}

// doc: end

// doc: error
func tryComplete(ctx context.Context, conn *pgx.Conn, key string, generation *int64, result any,
	reference string, amount int64) (string, error) {
	err := complete(ctx, conn, key, generation, result, reference, amount)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "ID002" {
		return "replaced", nil // by a newer owner; the row of refund is rolled back
	}
	return "done", err
}

// doc: end

func reject(ctx context.Context, conn *pgx.Conn, key string, generation *int64, why any) error {
	_, err := conn.Exec(ctx, "SELECT idem_reject($1, $2, $3)", key, generation, why)
	return err
}

// doc: unknown
func markUnknown(ctx context.Context, conn *pgx.Conn, key string, generation *int64, detail any,
	retryAfter *time.Duration) error {
	_, err := conn.Exec(ctx, "SELECT idem_mark_unknown($1, $2, $3, $4)",
		key, generation, detail, retryAfter)
	return err
}

// doc: end

func status(ctx context.Context, conn *pgx.Conn, key string) (string, error) {
	var state string
	var generation int64
	var result, why map[string]any
	var reference *string
	err := conn.QueryRow(ctx, `SELECT state, generation, result, error, channel_ref
		FROM idem_status($1)`, key).Scan(&state, &generation, &result, &why, &reference)
	return fmt.Sprintf("state=%s\tgeneration=%d\tresult=%s\terror=%s\tchannel_ref=%s", state,
		generation, shown(result), shown(why), shown(reference)), err
}

// doc: once
func once(ctx context.Context, conn *pgx.Conn, key string, params any,
	amount int64) (first bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "SELECT idem_once($1, $2)", key, params).Scan(&first)
		if err == nil && first {
			_, err = tx.Exec(ctx, "INSERT INTO credit (key, amount) VALUES ($1, $2)", key, amount)
		}
		return err
	})
	return first, err
}

// doc: end

// doc: trap
func onceTrap(ctx context.Context, conn *pgx.Conn, key string, params any,
	amount int64) (first bool, err error) {
	err = conn.QueryRow(ctx, "SELECT idem_once($1, $2)", key, params).Scan(&first)
	// on record as done already, so that a failure from here on loses the credit
	if err == nil && first {
		_, err = conn.Exec(ctx, "INSERT INTO credit (key, amount) VALUES ($1, $2)", key, amount)
	}
	return first, err
}

// doc: end

// doc: consume
func consume(ctx context.Context, conn *pgx.Conn, keys []string, payloads []map[string]any,
	occurredAt []time.Time) (outcomes []string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT key, payload, outcome
			FROM idem_consume_batch($1, $2, $3)`, keys, payloads, occurredAt)
		if err != nil {
			return err
		}
		events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			Key     string
			Payload struct{ Pieces int64 }
			Outcome string
		}])
		if err != nil {
			return err
		}
		for _, event := range events {
			if event.Outcome == "first" {
				_, err = tx.Exec(ctx, "INSERT INTO stock (key, pieces) VALUES ($1, $2)",
					event.Key, event.Payload.Pieces)
				if err != nil {
					return err
				}
			}
			outcomes = append(outcomes, event.Outcome)
		}
		return nil
	})
	return outcomes, err
}

// doc: end

// What must not be: claimed and completed in one transaction.
func early(ctx context.Context, conn *pgx.Conn, key string, params any) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		verdict, err := claim(ctx, tx.Conn(), key, params, nil, nil)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "SELECT idem_complete($1, $2)", key, verdict.Generation)
		return err
	})
}

func bindings(ctx context.Context, conn *pgx.Conn, key string, params any,
	occurredAt *time.Time) (string, error) {
	outcomes := map[string]bool{}
	document, err := json.Marshal(params)
	if err != nil {
		return "", err
	}
	for _, placeholder := range []string{"$1", "$1::text", "$1::varchar", "$1::idem_key"} {
		for _, bound := range []any{key, &key, pgtype.Text{String: key, Valid: true}} {
			for _, given := range []any{params, document, string(document)} {
				var outcome string
				err := conn.QueryRow(ctx, "SELECT outcome FROM idem_claim("+placeholder+", $2, $3)",
					bound, given, occurredAt).Scan(&outcome)
				if err != nil {
					return "", err
				}
				outcomes[outcome] = true
			}
		}
	}
	return joined(outcomes), nil
}

func many(ctx context.Context, conn *pgx.Conn, times int64, key string, params any,
	occurredAt *time.Time) (string, error) {
	outcomes := map[string]bool{}
	for ; times > 0; times-- {
		verdict, err := claim(ctx, conn, key, params, occurredAt, nil)
		if err != nil {
			return "", err
		}
		outcomes[verdict.Outcome] = true
	}
	return joined(outcomes), nil
}

func prepared(ctx context.Context, conn *pgx.Conn) (count int64, err error) {
	err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql").
		Scan(&count)
	return count, err
}

// What comes of what the page warns of.
func mistakes(ctx context.Context, conn *pgx.Conn, key string, occurredAt *time.Time) (row, error) {
	exact := `{"amount": 9007199254740993}`
	_, err := claim(ctx, conn, key, exact, occurredAt, nil)
	if err != nil {
		return "", err
	}
	verdict, err := claim(ctx, conn, key, document(exact), occurredAt, nil)
	return row("number=" + verdict.Outcome), err
}

// ---- the protocol ----

func joined(set map[string]bool) string {
	var members []string
	for member := range set {
		members = append(members, member)
	}
	sort.Strings(members)
	return strings.Join(members, ",")
}

func shown(value any) string {
	switch v := value.(type) {
	case map[string]any:
		if v == nil {
			return `\N`
		}
		document, _ := json.Marshal(v)
		return string(document)
	case []string:
		if v == nil {
			return `\N`
		}
		return strings.Join(v, ",")
	case *string:
		if v == nil {
			return `\N`
		}
		return *v
	case *int32:
		if v == nil {
			return `\N`
		}
		return fmt.Sprint(*v)
	case *time.Time:
		if v == nil {
			return `\N`
		}
		return fmt.Sprint(v.UnixMilli())
	}
	return fmt.Sprint(value)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(word string) *int64 {
	if word == `\N` {
		return nil
	}
	value, err := strconv.ParseInt(word, 10, 64)
	must(err)
	return &value
}

func document(word string) map[string]any {
	var value map[string]any
	must(json.Unmarshal([]byte(word), &value))
	return value
}

func moment(word string) *time.Time {
	if word == `\N` {
		return nil
	}
	value, err := time.Parse(time.RFC3339Nano, word)
	must(err)
	return &value
}

func duration(word string) *time.Duration {
	if word == `\N` {
		return nil
	}
	value, err := time.ParseDuration(word + "s")
	must(err)
	return &value
}

func answer(ctx context.Context, conn *pgx.Conn, w []string) (told any, err error) {
	switch w[0] {
	case "claim":
		var v Verdict
		v, err = claim(ctx, conn, w[1], document(w[2]), moment(w[3]), duration(w[4]))
		return row(fmt.Sprintf(
			"outcome=%s\tgeneration=%d\tattempt=%s\tlease_until=%s\tparams=%s\tdiffers=%s", v.Outcome,
			v.Generation, shown(v.Attempt), shown(v.LeaseUntil), shown(v.Params), shown(v.Differs))), err
	case "complete":
		err = complete(ctx, conn, w[1], number(w[2]), document(w[3]), w[4], *number(w[5]))
		return "done", err
	case "try_complete":
		return tryComplete(ctx, conn, w[1], number(w[2]), document(w[3]), w[4], *number(w[5]))
	case "reject":
		return "done", reject(ctx, conn, w[1], number(w[2]), document(w[3]))
	case "mark_unknown":
		return "done", markUnknown(ctx, conn, w[1], number(w[2]), document(w[3]), duration(w[4]))
	case "status":
		line, err := status(ctx, conn, w[1])
		return row(line), err
	case "once":
		return once(ctx, conn, w[1], document(w[2]), *number(w[3]))
	case "once_trap":
		return onceTrap(ctx, conn, w[1], document(w[2]), *number(w[3]))
	case "consume":
		var payloads []map[string]any
		var times []time.Time
		for _, word := range strings.Split(w[2], "|") {
			payloads = append(payloads, document(word))
		}
		for _, word := range strings.Split(w[3], ",") {
			times = append(times, *moment(word))
		}
		outcomes, err := consume(ctx, conn, strings.Split(w[1], ","), payloads, times)
		return shown(outcomes), err
	case "early":
		return "done", early(ctx, conn, w[1], document(w[2]))
	case "bindings":
		return bindings(ctx, conn, w[1], document(w[2]), moment(w[3]))
	case "many":
		return many(ctx, conn, *number(w[1]), w[2], document(w[3]), moment(w[4]))
	case "prepared":
		return prepared(ctx, conn)
	case "mistakes":
		return mistakes(ctx, conn, w[1], moment(w[2]))
	}
	return nil, errors.New("unknown command " + w[0])
}

// what is an answer as it is
type row string

func main() {
	ctx := context.Background()
	conn, err := connect(ctx, "", len(os.Args) > 1)
	must(err)
	defer conn.Close(ctx)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		told, err := answer(ctx, conn, strings.Split(lines.Text(), "\t"))
		var pgErr *pgconn.PgError
		switch {
		case errors.As(err, &pgErr):
			fmt.Printf("sqlstate=%s\tclass=PgError\n", pgErr.Code)
		case err != nil:
			fmt.Printf("sqlstate=\\N\tclass=%T\n", err)
		default:
			if line, isRow := told.(row); isRow {
				fmt.Println(line)
			} else {
				fmt.Printf("answer=%v\n", told)
			}
		}
	}
}
