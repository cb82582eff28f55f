"""Plots and tables from run directories."""
