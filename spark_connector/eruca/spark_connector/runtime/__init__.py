"""What every process of Spark needs: the connections to clusters, their options, and the checks of the installation."""
