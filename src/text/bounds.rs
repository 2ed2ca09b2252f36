//! Limits the template language, so that no template takes unbounded time or memory.
//!
//! The engine's fuel counts steps, not bytes: a string times a number, `replace` or a recursive macro produce gigabytes
//! in a few steps. Only statements, operators and filters are allowed whose result is at most a small multiple of the
//! row. They are checked before the engine compiles the template, because the compiler evaluates constants.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use minijinja::machinery::{Span, Token, ast, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, StringInput, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use ast::BinOpKind::{Add, Concat, Div, FloorDiv, Mul, Pow, Rem, Sub};
use ast::{CallArg, Expr, Stmt, UnaryOpKind};

use super::display::printable_line;

/// The longest template and the longest text of a row, in bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// The words of the available statements, less `raw`, which is text.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
const FILTERS: &str = "abs, capitalize, count, d, default, first, float, format, int, join, last, length, lines, \
                       lower, replace, round, split, title, trim, upper";
/// Filters that return a number or fail.
const NUMERIC_FILTERS: [&str; 6] = ["abs", "count", "float", "int", "length", "round"];
/// Filters that split one string into a list.
const SPLITTING_FILTERS: [&str; 2] = ["lines", "split"];
/// How many values `~`, `+` and lists may join in one template.
const MAX_JOINED: usize = 64;
/// How many statements may begin a branch or a loop in one template. Each can contain the next.
const MAX_BRANCHES: usize = 100;
/// How many names, values and operators a placeholder or a statement may have, and how many brackets. Each can be an
/// operand of the next.
const MAX_TOKENS: usize = 256;
const MAX_BRACKETS: usize = 32;

/// The line and what is not allowed there.
type Checked = Result<(), String>;

/// Checks a template before it is compiled.
pub(super) fn check(source: &str) -> Checked {
    check_tokens(source)?;
    let parsed = parse(source, "", SyntaxConfig::default()).map_err(|error| with_line(&error))?;
    let mut checker = Checker { joined: 0 };
    match &parsed {
        Stmt::Template(template) => checker.statements(&template.children),
        other => checker.statement(other),
    }
}

/// Limits how deep the template nests: the parser and the compiler recurse, and are not called with more. What is not
/// a token is left to the parser.
fn check_tokens(source: &str) -> Checked {
    let (mut branches, mut length, mut brackets, mut begins_statement) = (0, 0, 0, false);
    for (token, span) in tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::Ident(word) if begins_statement && !STATEMENTS.contains(&word) => {
                return violation(
                    span,
                    format!("`{{% {word} %}}` is not available in a template"),
                );
            }
            Token::Ident("if" | "elif" | "for") if begins_statement => branches += 1,
            Token::VariableStart | Token::BlockStart => (length, brackets) = (0, 0),
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => brackets += 1,
            _ => length += 1,
        }
        begins_statement = matches!(token, Token::BlockStart);
        for (count, most, of) in [
            (branches, MAX_BRANCHES, "`if`, `elif` and `for`"),
            (
                length,
                MAX_TOKENS,
                "names, values and operators in one place",
            ),
            (brackets, MAX_BRACKETS, "brackets in one place"),
        ] {
            if count > most {
                return violation(span, format!("more than {most} {of}"));
            }
        }
    }
    Ok(())
}

struct Checker {
    joined: usize,
}

impl Checker {
    fn statements(&mut self, statements: &[Stmt<'_>]) -> Checked {
        statements
            .iter()
            .try_for_each(|statement| self.statement(statement))
    }

    fn expressions<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr<'e>>) -> Checked {
        expressions
            .into_iter()
            .try_for_each(|expression| self.expression(expression))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Checked {
        match statement {
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr)?;
                self.statements(&condition.true_body)?;
                self.statements(&condition.false_body)
            }
            Stmt::ForLoop(each) => self.each(each),
            _ => Err("a statement is not available in a template".to_owned()),
        }
    }

    /// Checks a loop. Its list must be a column or pieces of one: lists that are joined in the template would double
    /// in size with every nested loop.
    fn each(&mut self, each: &ast::ForLoop<'_>) -> Checked {
        let is_bounded = match &each.iter {
            Expr::Var(_) => true,
            Expr::Filter(filter) => SPLITTING_FILTERS.contains(&filter.name),
            _ => false,
        };
        if each.recursive || !is_bounded {
            return violation(
                each.iter.span(),
                "a loop needs a column or pieces of one: `{% for part in column | split(\",\") %}`",
            );
        }
        self.expression(&each.iter)?;
        self.expressions(&each.filter_expr)?;
        self.statements(&each.body)?;
        self.statements(&each.else_body)
    }

    fn expression(&mut self, expression: &Expr<'_>) -> Checked {
        match expression {
            Expr::Var(_) | Expr::Const(_) => Ok(()),
            Expr::Slice(slice) => {
                // The engine panics where an empty text has a negative one.
                if slice.step.is_some() {
                    return violation(
                        expression.span(),
                        "a part of a text cannot have a step: write `name[:3]`",
                    );
                }
                self.expression(&slice.expr)?;
                self.expressions([&slice.start, &slice.stop].into_iter().flatten())
            }
            Expr::UnaryOp(operation) => self.expression(&operation.expr),
            Expr::BinOp(operation) => {
                self.expressions([&operation.left, &operation.right])?;
                match operation.op {
                    Concat => self.join(1, expression.span()),
                    Add if !is_number(expression) => self.join(1, expression.span()),
                    Mul if !is_number(expression) => violation(
                        expression.span(),
                        "`*` needs a number on both sides: `price | float * 2`",
                    ),
                    _ => Ok(()),
                }
            }
            Expr::Compare(comparison) => {
                self.expression(&comparison.expr)?;
                self.expressions(comparison.ops.iter().map(|operation| &operation.expr))
            }
            Expr::IfExpr(choice) => {
                self.expressions([&choice.test_expr, &choice.true_expr])?;
                self.expressions(&choice.false_expr)
            }
            Expr::Filter(filter) => {
                if FILTERS.split(", ").all(|known| known != filter.name) {
                    let detail = format!("unknown filter `{}`: known are {FILTERS}", filter.name);
                    return violation(filter.span(), detail);
                }
                self.expressions(&filter.expr)?;
                self.expressions(filter.args.iter().map(argument))
            }
            Expr::Test(test) => {
                self.expression(&test.expr)?;
                self.expressions(test.args.iter().map(argument))
            }
            Expr::GetAttr(part) => self.expression(&part.expr),
            Expr::GetItem(item) => self.expressions([&item.expr, &item.subscript_expr]),
            Expr::List(list) => self.list(&list.items, list.span()),
            Expr::Tuple(tuple) => self.list(&tuple.items, tuple.span()),
            Expr::Call(call) => violation(call.span(), "a template cannot call functions"),
            Expr::Map(map) => violation(map.span(), "`{…: …}` is not available in a template"),
        }
    }

    fn list(&mut self, items: &[Expr<'_>], span: Span) -> Checked {
        self.join(items.len(), span)?;
        self.expressions(items)
    }

    fn join(&mut self, values: usize, span: Span) -> Checked {
        self.joined += values;
        if self.joined > MAX_JOINED {
            let detail = format!("more than {MAX_JOINED} values are joined by `~`, `+` and lists");
            return violation(span, detail);
        }
        Ok(())
    }
}

fn argument<'e>(argument: &'e CallArg<'e>) -> &'e Expr<'e> {
    match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    }
}

fn violation(span: Span, detail: impl fmt::Display) -> Checked {
    Err(format!("line {}: {detail}", span.start_line))
}

/// Whether the value is a number for every row.
fn is_number(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.kind() == ValueKind::Number,
        Expr::UnaryOp(operation) => {
            matches!(operation.op, UnaryOpKind::Neg) && is_number(&operation.expr)
        }
        Expr::BinOp(operation) => {
            let keeps_numbers =
                matches!(operation.op, Add | Sub | Mul | Div | FloorDiv | Rem | Pow);
            keeps_numbers && is_number(&operation.left) && is_number(&operation.right)
        }
        // A default among the arguments may be returned as it is.
        Expr::Filter(filter) => {
            NUMERIC_FILTERS.contains(&filter.name)
                && filter.args.iter().all(|argument| match argument {
                    CallArg::Pos(value) | CallArg::Kwarg(_, value) => is_number(value),
                    CallArg::PosSplat(_) | CallArg::KwargSplat(_) => false,
                })
        }
        _ => false,
    }
}

/// Replaces the built-in filters whose result has no limit.
pub(super) fn add_filters(environment: &mut Environment<'static>) {
    environment.add_filter("format", format);
    environment.add_filter("join", join);
    environment.add_filter("lines", |text: &Value| filters::lines(short(text)?));
    environment.add_filter("replace", replace);
    environment.add_filter(
        "split",
        |text: &Value, separator: Option<Arc<str>>, limit: Option<i64>| {
            filters::split(short(text)?, separator, limit)
        },
    );
}

fn replace(state: &State, text: &Value, from: &Value, to: &Value) -> Result<String, Error> {
    let [text, from, to] = [text, from, to].map(|value| StringInput::new(state, value));
    let (text, from, to) = (text?, from?, to?);
    let (text, from, to) = (text.as_str(), from.as_str(), to.as_str());
    let growth = to.len().saturating_sub(from.len());
    let growth = text.matches(from).count().saturating_mul(growth);
    check_length(text.len().saturating_add(growth))?;
    Ok(text.replace(from, to))
}

fn join(items: &Value, separator: Option<&str>) -> Result<String, Error> {
    let mut text = String::new();
    for (at, item) in defined(items)?.try_iter()?.enumerate() {
        let item = match defined(&item)?.as_str() {
            Some(item) => Cow::Borrowed(item),
            None => Cow::Owned(item.to_string()),
        };
        let separator = separator.filter(|_| at > 0).unwrap_or_default();
        check_length(text.len() + separator.len() + item.len())?;
        text += separator;
        text += &item;
    }
    Ok(text)
}

/// Fails for widths of three digits, for widths from a value, and for named values, which can be used several
/// times.
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
        let detail = "`format` takes values in order, and widths below 100";
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    filters::format(state, pattern, values)
}

/// The value, unless it is undefined or a text that would be split into too many pieces.
fn short(value: &Value) -> Result<&Value, Error> {
    check_length(defined(value)?.as_str().map_or(0, str::len))?;
    Ok(value)
}

fn defined(value: &Value) -> Result<&Value, Error> {
    if value.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    Ok(value)
}

fn check_length(length: usize) -> Result<(), Error> {
    if length > MAX_SOURCE {
        return Err(ErrorKind::WriteFailure.into());
    }
    Ok(())
}

/// Describes an error of the engine and its line.
pub(super) fn with_line(error: &Error) -> String {
    format!("line {}: {}", error.line().unwrap_or(1), detail(error))
}

pub(super) fn detail(error: &Error) -> String {
    // It may have parts of the template.
    match error.detail().map(printable_line) {
        _ if error.kind() == ErrorKind::WriteFailure => text_too_long(),
        Some(detail) if error.kind() == ErrorKind::SyntaxError => detail.into_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

pub(super) fn text_too_long() -> String {
    format!("the text is longer than {} KiB", MAX_SOURCE / 1024)
}
