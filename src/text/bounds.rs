//! The part of the template language that a text may use. None of it makes more of a row than a small multiple
//! of it. The engine counts steps, not bytes: a variable that doubles, a string times a number, `replace`,
//! or a macro that calls itself ask for gigabytes in a few steps.
//!
//! A text is checked before the engine compiles it, because the engine computes constants then.

use std::borrow::Cow;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use minijinja::machinery::{Span, ast, parse};
use minijinja::value::{Rest, StringInput, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::template::{LONGEST_SOURCE, detail};
use ast::{BinOpKind, CallArg, Expr, Stmt, UnaryOpKind};

const FILTERS: [&str; 20] = [
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "first",
    "float",
    "format",
    "int",
    "join",
    "last",
    "length",
    "lines",
    "lower",
    "replace",
    "round",
    "split",
    "title",
    "trim",
    "upper",
];
/// They give a number or an error.
const NUMBERS: [&str; 6] = ["abs", "count", "float", "int", "length", "round"];
/// They give a list of pieces of one string.
const PIECES: [&str; 2] = ["lines", "split"];
/// How many strings `~`, `+` and lists may put together in one text.
const MOST_PARTS: usize = 64;
const DEEPEST: usize = 100;
/// Bytes, for the longest text made of nothing but signs.
const STACK: usize = 128 << 20;

/// Where the text uses something else, and what.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) line: usize,
    pub(super) detail: String,
}

/// Checks a text. The engine's parser calls itself for every sign in a row of them, which takes far more stack than
/// a thread of the program has.
pub(super) fn check(source: &str) -> Result<(), Refused> {
    let checked = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn_scoped(scope, || check_here(source))?;
        Ok(thread.join())
    });
    match checked {
        Ok(Ok(checked)) => checked,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => Err(Refused {
            line: 1,
            detail: io::Error::to_string(&error),
        }),
    }
}

fn check_here(source: &str) -> Result<(), Refused> {
    let parsed = parse(source, "", minijinja::syntax::SyntaxConfig::default());
    let parsed = parsed.map_err(|error| Refused {
        line: error.line().unwrap_or(1),
        detail: detail(&error),
    })?;
    let mut check = Check {
        source,
        parts: 0,
        depth: 0,
    };
    match &parsed {
        Stmt::Template(template) => check.statements(&template.children),
        other => check.statement(other),
    }
}

struct Check<'s> {
    source: &'s str,
    parts: usize,
    depth: usize,
}

impl Check<'_> {
    fn statements(&mut self, statements: &[Stmt<'_>]) -> Result<(), Refused> {
        statements.iter().try_for_each(|one| self.statement(one))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Result<(), Refused> {
        match statement {
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::IfCond(condition) => self.deeper(condition.span(), |check| {
                check.expression(&condition.expr)?;
                check.statements(&condition.true_body)?;
                check.statements(&condition.false_body)
            }),
            Stmt::ForLoop(each) => self.deeper(each.span(), |check| {
                // What a loop goes over is never put together: else loops within loops double it.
                let is_bounded = match &each.iter {
                    Expr::Var(_) => true,
                    Expr::Filter(filter) => PIECES.contains(&filter.name),
                    _ => false,
                };
                if each.recursive || !is_bounded {
                    let detail = "a loop goes over a column, or over pieces of it: \
                                  `{% for part in column | split(\",\") %}`";
                    return Err(refused(each.span(), detail));
                }
                check.expression(&each.iter)?;
                each.filter_expr
                    .iter()
                    .try_for_each(|filter| check.expression(filter))?;
                check.statements(&each.body)?;
                check.statements(&each.else_body)
            }),
            Stmt::Template(template) => Err(self.unavailable(template.span())),
            Stmt::WithBlock(it) => Err(self.unavailable(it.span())),
            Stmt::Set(it) => Err(self.unavailable(it.span())),
            Stmt::SetBlock(it) => Err(self.unavailable(it.span())),
            Stmt::AutoEscape(it) => Err(self.unavailable(it.span())),
            Stmt::FilterBlock(it) => Err(self.unavailable(it.span())),
            Stmt::Block(it) => Err(self.unavailable(it.span())),
            Stmt::Import(it) => Err(self.unavailable(it.span())),
            Stmt::FromImport(it) => Err(self.unavailable(it.span())),
            Stmt::Extends(it) => Err(self.unavailable(it.span())),
            Stmt::Include(it) => Err(self.unavailable(it.span())),
            Stmt::Macro(it) => Err(self.unavailable(it.span())),
            Stmt::CallBlock(it) => Err(self.unavailable(it.span())),
            Stmt::Do(it) => Err(self.unavailable(it.span())),
        }
    }

    fn expression(&mut self, expression: &Expr<'_>) -> Result<(), Refused> {
        self.deeper(expression.span(), |check| match expression {
            Expr::Var(_) | Expr::Const(_) => Ok(()),
            Expr::Slice(slice) => {
                let bounds = [&slice.start, &slice.stop, &slice.step];
                check.expression(&slice.expr)?;
                bounds
                    .into_iter()
                    .flatten()
                    .try_for_each(|bound| check.expression(bound))
            }
            Expr::UnaryOp(operation) => check.expression(&operation.expr),
            Expr::BinOp(operation) => {
                check.expression(&operation.left)?;
                check.expression(&operation.right)?;
                match operation.op {
                    BinOpKind::Concat => check.put_together(1, expression.span()),
                    BinOpKind::Add if !is_number(expression) => {
                        check.put_together(1, expression.span())
                    }
                    BinOpKind::Mul if !is_number(expression) => {
                        let detail = "`*` needs a number on both sides: `price | float * 2`";
                        Err(refused(expression.span(), detail))
                    }
                    _ => Ok(()),
                }
            }
            Expr::Compare(comparison) => {
                check.expression(&comparison.expr)?;
                comparison
                    .ops
                    .iter()
                    .try_for_each(|operation| check.expression(&operation.expr))
            }
            Expr::IfExpr(choice) => {
                check.expression(&choice.test_expr)?;
                check.expression(&choice.true_expr)?;
                choice
                    .false_expr
                    .iter()
                    .try_for_each(|other| check.expression(other))
            }
            Expr::Filter(filter) => {
                if !FILTERS.contains(&filter.name) {
                    let known = FILTERS.join(", ");
                    let detail = format!("unknown filter `{}`: a text has {known}", filter.name);
                    return Err(refused(filter.span(), detail));
                }
                filter
                    .expr
                    .iter()
                    .try_for_each(|input| check.expression(input))?;
                check.arguments(&filter.args)
            }
            Expr::Test(test) => {
                check.expression(&test.expr)?;
                check.arguments(&test.args)
            }
            Expr::GetAttr(part) => check.expression(&part.expr),
            Expr::GetItem(item) => {
                check.expression(&item.expr)?;
                check.expression(&item.subscript_expr)
            }
            Expr::List(list) => check.items(&list.items, list.span()),
            Expr::Tuple(tuple) => check.items(&tuple.items, tuple.span()),
            Expr::Call(call) => Err(refused(call.span(), "a text cannot call functions")),
            Expr::Map(map) => Err(refused(map.span(), "`{…: …}` is not available in a text")),
        })
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Result<(), Refused> {
        arguments.iter().try_for_each(|argument| match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => self.expression(value),
        })
    }

    fn items(&mut self, items: &[Expr<'_>], span: Span) -> Result<(), Refused> {
        self.put_together(items.len(), span)?;
        items.iter().try_for_each(|item| self.expression(item))
    }

    fn put_together(&mut self, parts: usize, span: Span) -> Result<(), Refused> {
        self.parts += parts;
        if self.parts > MOST_PARTS {
            let detail = format!("more than {MOST_PARTS} parts are joined by `~`, `+` and lists");
            return Err(refused(span, detail));
        }
        Ok(())
    }

    fn deeper(
        &mut self,
        span: Span,
        within: impl FnOnce(&mut Self) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        if self.depth == DEEPEST {
            return Err(refused(span, "it is nested too deeply"));
        }
        self.depth += 1;
        within(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// The statement that begins at `span`, by its first word.
    fn unavailable(&self, span: Span) -> Refused {
        let rest = usize::try_from(span.start_offset).ok();
        let rest = rest
            .and_then(|at| self.source.get(at..))
            .unwrap_or_default();
        let end = rest.find(|c: char| !c.is_alphabetic());
        let word = &rest[..end.unwrap_or(rest.len())];
        refused(span, format!("`{{% {word} %}}` is not available in a text"))
    }
}

fn refused(span: Span, detail: impl Into<String>) -> Refused {
    Refused {
        line: usize::from(span.start_line),
        detail: detail.into(),
    }
}

/// Whether the value is a number whatever the row is.
fn is_number(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.kind() == ValueKind::Number,
        Expr::UnaryOp(operation) => {
            matches!(operation.op, UnaryOpKind::Neg) && is_number(&operation.expr)
        }
        Expr::BinOp(operation) => {
            matches!(
                operation.op,
                BinOpKind::Add
                    | BinOpKind::Sub
                    | BinOpKind::Mul
                    | BinOpKind::Div
                    | BinOpKind::FloorDiv
                    | BinOpKind::Rem
                    | BinOpKind::Pow
            ) && is_number(&operation.left)
                && is_number(&operation.right)
        }
        // A default is given back as it is.
        Expr::Filter(filter) => {
            NUMBERS.contains(&filter.name)
                && filter.args.iter().all(|argument| match argument {
                    CallArg::Pos(value) | CallArg::Kwarg(_, value) => is_number(value),
                    CallArg::PosSplat(_) | CallArg::KwargSplat(_) => false,
                })
        }
        _ => false,
    }
}

/// The engine's own filters of these names give any length.
pub(super) fn add_filters(environment: &mut Environment<'static>) {
    environment.add_filter("format", format);
    environment.add_filter("join", join);
    environment.add_filter("lines", lines);
    environment.add_filter("replace", replace);
    environment.add_filter("split", split);
}

fn replace(state: &State, text: &Value, from: &Value, to: &Value) -> Result<String, Error> {
    let [text, from, to] = [text, from, to].map(|value| StringInput::new(state, value));
    let (text, from, to) = (text?, from?, to?);
    let (text, from, to) = (text.as_str(), from.as_str(), to.as_str());
    let more = to.len().saturating_sub(from.len());
    let more = text.matches(from).count().saturating_mul(more);
    fit(text.len().saturating_add(more))?;
    Ok(text.replace(from, to))
}

fn join(items: &Value, separator: Option<&str>) -> Result<String, Error> {
    let separator = separator.unwrap_or_default();
    let mut text = String::new();
    for (at, item) in defined(items)?.try_iter()?.enumerate() {
        let item = match defined(&item)?.as_str() {
            Some(item) => Cow::Borrowed(item),
            None => Cow::Owned(item.to_string()),
        };
        let separator = if at == 0 { "" } else { separator };
        fit(text.len() + separator.len() + item.len())?;
        text.push_str(separator);
        text.push_str(&item);
    }
    Ok(text)
}

/// Refuses widths of three digits, widths that are values, and values that are named and so used again.
fn format(
    state: &mut State<'_, '_>,
    pattern: &Value,
    values: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let text = pattern.as_str().unwrap_or_default();
    let is_bounded = text.split('%').skip(1).all(|rest| {
        let spec = rest.split(char::is_alphabetic).next().unwrap_or_default();
        let mut widths = spec.split(|c: char| !c.is_ascii_digit());
        !spec.contains(['*', '(']) && widths.all(|width| width.len() < 3)
    });
    if !is_bounded {
        let detail = "`format` takes values in their order, and a width below 100";
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    filters::format(state, pattern, values)
}

fn split(text: &Value, separator: Option<Arc<str>>, most: Option<i64>) -> Result<Value, Error> {
    fit(defined(text)?.as_str().map_or(0, str::len))?;
    filters::split(text, separator, most)
}

fn lines(text: &Value) -> Result<Value, Error> {
    fit(defined(text)?.as_str().map_or(0, str::len))?;
    filters::lines(text)
}

fn defined(value: &Value) -> Result<&Value, Error> {
    if value.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    Ok(value)
}

fn fit(length: usize) -> Result<(), Error> {
    if length > LONGEST_SOURCE {
        return Err(ErrorKind::WriteFailure.into());
    }
    Ok(())
}
